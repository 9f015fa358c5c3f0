"""Vitral's own form: /v1/predict, /v1/features, /v1/explain, /v1/models."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse

from vitral.classifier.prediction import Prediction
from vitral.explanation.explain import explain
from vitral.explanation.methods import Choice
from vitral.images.drawing import encode
from vitral.serving.answers import ExplainAnswer, FeaturesAnswer, ModelsAnswer, PredictAnswer, answered
from vitral.serving.batcher import Lane
from vitral.serving.limits import MOST_CLASSES
from vitral.serving.probes import service_of
from vitral.serving.reading import JsonImages, images_of, reference
from vitral.serving.refusals import malformed, refusal_of
from vitral.serving.served import Served
from vitral.serving.visit import answer_of, answers_of, until_gone

router = APIRouter(prefix="/v1", tags=["v1"])

Top = Annotated[int, Query(ge=1, le=MOST_CLASSES, description="Classes to name for each image.")]
Model = Annotated[str | None, Query(description="The classifier's name; the first if left out.")]
DRAWINGS: dict[str, Literal["JPEG", "PNG"]] = {"image/jpeg": "JPEG", "image/png": "PNG", "image/*": "JPEG"}
BINARY = {"type": "string", "format": "binary"}
ONE_IMAGE = {"*/*": {"schema": BINARY}}
SEVERAL_IMAGES = {
    **ONE_IMAGE,
    "multipart/form-data": {
        "schema": {"type": "object", "properties": {"image": {"type": "array", "items": BINARY}}, "required": ["image"]}
    },
    "application/json": {
        "schema": reference(JsonImages),
        "example": {"images": [{"name": "cat.jpg", "data": "/9j/4AAQSkZJRg..."}]},
    },
}
ANSWER = {
    "source": "cat.jpg",
    "label": "cat",
    "probability": 0.93,
    "top": [{"label": "cat", "probability": 0.93}, {"label": "dog", "probability": 0.05}],
}
UNREADABLE = {"source": "notes.txt", "error": "The image is not a readable image", "code": "not_an_image"}


def body(content: dict[str, Any]) -> dict[str, Any]:
    """Return what OpenAPI says of a request's body, which FastAPI does not see, as limits are checked while it is read."""
    return {"requestBody": {"required": True, "content": content}}


def versioned(served: Served, **answer: object) -> dict[str, Any]:
    """Return an answer with what gave it."""
    return {"model": served.name, "version": served.version, **answer}


@router.post(
    "/predict",
    openapi_extra=body(SEVERAL_IMAGES),
    responses=answered(
        PredictAnswer, {"model": "photos", "version": "295077161933", "predictions": [ANSWER, UNREADABLE]}
    ),
)
async def predict(request: Request, model: Model = None, top: Top = 5) -> JSONResponse:
    """Say what is in images, with probabilities.

    An image alone, as the body, gets an error's status if it cannot be read. Of several, those that cannot be read have
    "error" and "code" in their places; the others are answered.
    """
    served = service_of(request).model(model)

    def described(name: str, answer: Any) -> dict[str, Any]:  # noqa: ANN401  # of the lane
        return _told(served.prediction(name, answer, top))

    return await _each(request, served, served.answers, "predictions", described)


@router.post("/features", openapi_extra=body(SEVERAL_IMAGES), responses=answered(FeaturesAnswer))
async def features(request: Request, model: Model = None) -> JSONResponse:
    """Return the features of images: what the network's last layer reads, for search and clustering."""
    served = service_of(request).model(model)
    return await _each(
        request,
        served,
        served.features,
        "features",
        lambda name, answer: {"source": name, "features": answer.tolist()},
    )


async def _each(
    request: Request, served: Served, lane: Lane, plural: str, described: Callable[[str, Any], dict[str, Any]]
) -> JSONResponse:
    """Answer each image of a request by a lane."""
    images, several = await images_of(request)
    answers = await answers_of(request, served, lane, [content for _, content in images])
    rows = [_row(name, answer, described) for (name, _), answer in zip(images, answers, strict=True)]
    if not several and "error" in rows[0]:
        raise refusal_of(answers[0])
    return JSONResponse(versioned(served, **{plural: rows}))


def _row(name: str, answer: Any, described: Callable[[str, Any], dict[str, Any]]) -> dict[str, Any]:  # noqa: ANN401
    if isinstance(answer, BaseException):
        return {"source": name, **refusal_of(answer).to_json()}
    return described(name, answer)


def _told(prediction: Prediction) -> dict[str, Any]:
    """Return a prediction as JSON, with whether it had better be left to a person."""
    told = prediction.to_json()
    if prediction.sure is not None or prediction.known is not None:
        told["abstain"] = prediction.sure is False or prediction.known is False
    return told


@router.post(
    "/explain",
    openapi_extra=body(ONE_IMAGE),
    responses=answered(ExplainAnswer, None, "image/jpeg", "image/png"),
)
async def explanation(
    request: Request,
    model: Model = None,
    top: Top = 5,
    method: Choice = "auto",
    label: str | None = None,
    layer: int | None = None,
    head: int | None = None,
    style: Literal["side", "overlay", "heat"] = "side",
) -> Response:
    """Show where the network looked: as numbers, or as a drawing where "Accept" is image/jpeg or image/png."""
    served = service_of(request).model(model)
    images, _ = await images_of(request)
    if len(images) != 1:
        raise malformed("One image is explained at a time.")
    compute = partial(
        explain, served.classifier, images[0][1], top=top, method=method, label=label, layer=layer, head=head
    )
    found = await answer_of(request, served, compute)
    form = DRAWINGS.get(request.headers.get("accept", "").partition(",")[0].strip())
    if form is None:
        return JSONResponse(versioned(served, **found.to_json(), box=list(found.box), size=list(found.photo.shape[:2])))
    aside = service_of(request).aside(lambda: encode(found.draw(style=style), form))
    (drawing,) = await until_gone(request, [aside])
    if isinstance(drawing, BaseException):
        raise drawing
    return Response(drawing, media_type=f"image/{form.lower()}")


@router.get("/models", responses=answered(ModelsAnswer))
async def models(request: Request) -> JSONResponse:
    """List the classifiers: names, versions, classes, what computes, and which maps `/v1/explain` draws."""
    service = service_of(request)
    listed = [_about(served) for served in service.models.values()]
    return JSONResponse({"models": listed, "collects": service.collection is not None})


def _about(served: Served) -> dict[str, Any]:
    classifier = served.classifier
    calibration = None if classifier.calibration is None else dataclasses.asdict(classifier.calibration)
    heads = classifier.predictor.shown_heads
    names_each = classifier.predictor.num_classes == len(classifier.class_names)
    return {
        "name": served.name,
        "version": served.version,
        "classes": list(classifier.class_names),
        "task": classifier.task.name,
        "network": classifier.predictor.describe(),
        "image_size": list(classifier.preprocessing.image_size),
        "computed_by": classifier.predictor.computed_by,
        "images_at_once": served.answers.most,
        "calibration": calibration,
        "tells_novelty": classifier.tells_novelty,
        "maps": None if heads is None else {"classes": names_each, "layers": list(heads)},
        "scores": dict(classifier.provenance.scores),
        "doubt": classifier.doubt(),
    }
