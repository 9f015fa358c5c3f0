"""The forms of Hugging Face's clients and of TorchServe: the same answers, as their users know them.

Of regions Hugging Face has two tasks: object detection, with boxes, and image segmentation, whose masks are black-and-white PNG
images (huggingface_hub, inference/_generated/types/object_detection.py and image_segmentation.py).
"""

import base64
import io
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from PIL import Image
from pydantic import BaseModel, Field

from vitral.classifier.predicted_regions import PredictedRegions
from vitral.images.run_lengths import decode_mask
from vitral.serving.answers import Probability, ScoredClass, ScoredRegion, answered
from vitral.serving.limits import MOST_CLASSES
from vitral.serving.ours import ONE_IMAGE, body
from vitral.serving.probes import service_of
from vitral.serving.reading import LONE, Base64, images_of, kind_of, parsed, reference
from vitral.serving.refusals import RequestRefused, refusal_of
from vitral.serving.served import Served
from vitral.serving.visit import answers_of, aside, body_of

router = APIRouter(tags=["other forms"])
TOP = 5  # classes, as both of them have it
APPLIED: dict[str, str] = {"single-label": "softmax", "multi-label": "sigmoid"}
SUBTASKS: dict[str, str] = {"semantic": "semantic", "instances": "instance", "panoptic": "panoptic"}
SIDES = ("xmin", "ymin", "xmax", "ymax")


class Parameters(BaseModel):
    """What Hugging Face's tasks take besides the image."""

    top_k: Annotated[int, Field(ge=1, le=MOST_CLASSES)] | None = None
    function_to_apply: Literal["softmax", "sigmoid", "none"] | None = None
    threshold: Probability | None = None
    subtask: Literal["semantic", "instance", "panoptic"] | None = None


class TaskInput(BaseModel):
    """The JSON of Hugging Face's tasks."""

    inputs: Base64
    parameters: Parameters | None = None


SCORES = answered(
    list[ScoredClass] | list[ScoredRegion], [{"label": "cat", "score": 0.93}, {"label": "dog", "score": 0.05}]
)
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
    """Classify an image as Hugging Face's task does, or find regions as theirs do, by the first classifier."""
    return await _task(request, service_of(request).model(None))


@router.post("/models/{name}", openapi_extra=TASK, responses=SCORES)
async def named_model(request: Request, name: str) -> JSONResponse:
    """Classify an image as Hugging Face's task does, or find regions as theirs do."""
    return await _task(request, service_of(request).model(name))


async def _task(request: Request, served: Served) -> JSONResponse:
    parameters = Parameters()
    if kind_of(request) == "application/json":
        given = parsed(TaskInput, await body_of(request))
        image, parameters = given.inputs, given.parameters or parameters
    else:
        ((_, image), *_), _ = await images_of(request)
    served.check_options(top=parameters.top_k, threshold=parameters.threshold)
    task = served.classifier.task
    own = APPLIED.get(task.name)
    if parameters.subtask not in (None, SUBTASKS.get(task.name)):
        raise RequestRefused(422, "not_possible", f"Photos of this classifier {task.labelled}; leave subtask out.")
    if parameters.function_to_apply not in (None, own):
        raise RequestRefused(
            422,
            "not_possible",
            f"This classifier's answers are by {own or 'its own function'}; leave function_to_apply out.",
        )
    if served.finds_regions:
        found = served.regions(LONE, await _answer(request, served, image), parameters.threshold)
        return await aside(request, lambda: JSONResponse(_scored(found)))
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
    if served.finds_regions:
        raise RequestRefused(422, "not_possible", f"Photos of this classifier {served.labelled}; /v1/predict answers.")
    ((_, image), *_), _ = await images_of(request)
    return JSONResponse(dict(await _top(request, served, image, TOP)))


def _scored(found: PredictedRegions) -> list[dict[str, Any]]:
    """Return regions as both of Hugging Face's tasks have them: with a box, and with a mask where there are masks."""
    regions = found.regions
    rows = [
        {"label": label, "score": score, "box": dict(zip(SIDES, map(round, box), strict=True))}
        for label, score, box in zip(found.labels, found.confidence.tolist(), regions.boxes.tolist(), strict=True)
    ]
    for row, runs in zip(rows, regions.masks or (), strict=False):
        buffer = io.BytesIO()
        Image.fromarray(255 * decode_mask(runs, regions.size).astype(np.uint8)).save(buffer, "PNG")
        row["mask"] = base64.b64encode(buffer.getvalue()).decode()
    return rows


async def _answer(request: Request, served: Served, image: bytes) -> Any:  # noqa: ANN401  # of the lane
    (answer,) = await answers_of(request, served, served.answers, [image])
    if isinstance(answer, BaseException):
        raise refusal_of(answer)
    return answer


async def _top(request: Request, served: Served, image: bytes, top: int) -> tuple[tuple[str, float], ...]:
    return served.prediction(LONE, await _answer(request, served, image), top).top
