"""The forms of Hugging Face's clients and of TorchServe: the same answers, as their users know them."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from vitral.serving.answers import Probability, ScoredClass, answered
from vitral.serving.limits import MOST_CLASSES
from vitral.serving.ours import ONE_IMAGE, body
from vitral.serving.probes import service_of
from vitral.serving.reading import LONE, Base64, images_of, kind_of, parsed, reference
from vitral.serving.refusals import RequestRefused, refusal_of
from vitral.serving.served import Served
from vitral.serving.visit import answers_of, body_of

router = APIRouter(tags=["other forms"])
TOP = 5  # classes, as both of them have it
APPLIED: dict[str, str] = {"single-label": "softmax", "multi-label": "sigmoid"}


class Parameters(BaseModel):
    """What Hugging Face's task takes besides the image."""

    top_k: Annotated[int, Field(ge=1, le=MOST_CLASSES)] | None = None
    function_to_apply: Literal["softmax", "sigmoid", "none"] | None = None


class TaskInput(BaseModel):
    """The JSON of Hugging Face's task."""

    inputs: Base64
    parameters: Parameters | None = None


SCORES = answered(list[ScoredClass], [{"label": "cat", "score": 0.93}, {"label": "dog", "score": 0.05}])
TASK = body(
    {
        **ONE_IMAGE,
        "application/json": {
            "schema": reference(TaskInput),
            "example": {"inputs": "/9j/4AAQSkZJRg...", "parameters": {"top_k": 3}},
        },
    }
)


@router.post("/", openapi_extra=TASK, responses=SCORES)
async def first_model(request: Request) -> JSONResponse:
    """Classify an image as Hugging Face's task does, by the first classifier."""
    return await _task(request, service_of(request).model(None))


@router.post("/models/{name}", openapi_extra=TASK, responses=SCORES)
async def named_model(request: Request, name: str) -> JSONResponse:
    """Classify an image as Hugging Face's task does."""
    return await _task(request, service_of(request).model(name))


async def _task(request: Request, served: Served) -> JSONResponse:
    parameters = Parameters()
    if kind_of(request) == "application/json":
        given = parsed(TaskInput, await body_of(request))
        image, parameters = given.inputs, given.parameters or parameters
    else:
        ((_, image), *_), _ = await images_of(request)
    own = APPLIED.get(served.classifier.task.name)
    if parameters.function_to_apply not in (None, own):
        raise RequestRefused(
            422,
            "not_possible",
            f"This classifier's answers are by {own or 'its own function'}; leave function_to_apply out.",
        )
    top = await _top(request, served, image, parameters.top_k or TOP)
    return JSONResponse([{"label": label, "score": probability} for label, probability in top])


@router.post(
    "/predictions/{name}",
    openapi_extra=body(ONE_IMAGE),
    responses=answered(dict[str, Probability], {"cat": 0.93, "dog": 0.05}),
)
@router.put("/predictions/{name}", openapi_extra=body(ONE_IMAGE), include_in_schema=False)
async def predictions(request: Request, name: str) -> JSONResponse:
    """Classify an image as TorchServe's image_classifier does."""
    served = service_of(request).model(name)
    ((_, image), *_), _ = await images_of(request)
    return JSONResponse(dict(await _top(request, served, image, TOP)))


async def _top(request: Request, served: Served, image: bytes, top: int) -> tuple[tuple[str, float], ...]:
    answer: Any
    (answer,) = await answers_of(request, served, served.answers, [image])
    if isinstance(answer, BaseException):
        raise refusal_of(answer)
    return served.prediction(LONE, answer, top).top
