"""Vitral's own form: /v1/predict, /v1/features, /v1/explain, /v1/models."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse

from vitral.classifier.find_regions import shown_by
from vitral.classifier.inputs import to_pixels
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
from vitral.serving.visit import answer_of, answers_of, aside

router = APIRouter(prefix="/v1", tags=["v1"])

Top = Annotated[int, Query(ge=1, le=MOST_CLASSES, description="Classes to name for each image.")]
TOP = 5
Threshold = Annotated[
    float | None, Query(ge=0, le=1, description="How sure regions must be; the classifier's own threshold if left out.")
]
Model = Annotated[str | None, Query(description="The classifier's name; the first if left out.")]
DRAWINGS: dict[str, Literal["JPEG", "PNG"]] = {"image/jpeg": "JPEG", "image/png": "PNG", "image/*": "JPEG"}
DRAWN = ("image/jpeg", "image/png")
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
REGIONS = {
    "source": "cells.jpg",
    "height": 480,
    "width": 640,
    "counts": {"cell": 1, "dust": 0},
    "regions": [
        {
            "label": "cell",
            "category_id": 0,
            "bbox": [11.0, 11.0, 19.0, 19.0],
            "area": 293.0,
            "score": 0.93,
            "segmentation": {"size": [480, 640], "counts": "aU57g>4M2N2N2O0O2O000000000001N101N2N2N3Lamm8"},
        }
    ],
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
        PredictAnswer,
        {"model": "photos", "version": "295077161933", "predictions": [ANSWER, REGIONS, UNREADABLE]},
        *DRAWN,
    ),
)
async def predict(
    request: Request, model: Model = None, top: Top | None = None, threshold: Threshold = None
) -> Response:
    """Say what is in images: classes with probabilities, or regions as COCO's results have them.

    An image alone, as the body, gets an error's status if it cannot be read. Of several, those that cannot be read have
    "error" and "code" in their places; the others are answered. A classifier of regions draws them on a lone image where
    "Accept" is image/jpeg or image/png.
    """
    served = service_of(request).model(model)
    served.check_options(top=top, threshold=threshold)
    form = _drawing(request)
    if served.finds_regions and form is not None:
        return await _drawn_regions(request, served, threshold, form)

    def described(name: str, answer: Any) -> dict[str, Any]:  # noqa: ANN401  # of the lane
        if served.finds_regions:
            return served.regions(name, answer, threshold).to_json()
        return _told(served.prediction(name, answer, top or TOP))

    return await _each(request, served, served.answers, "predictions", described)


def _drawing(request: Request) -> Literal["JPEG", "PNG"] | None:
    """Return the form of a drawing that a request wants instead of JSON."""
    return DRAWINGS.get(request.headers.get("accept", "").partition(",")[0].strip())


async def _drawn_regions(
    request: Request, served: Served, threshold: float | None, form: Literal["JPEG", "PNG"]
) -> Response:
    images, _ = await images_of(request)
    if len(images) != 1:
        raise malformed("One image is drawn at a time.")
    (answer,) = await answers_of(request, served, served.answers, [images[0][1]])
    if isinstance(answer, BaseException):
        raise refusal_of(answer)
    found = served.regions(images[0][0], answer, threshold)
    drawing = await aside(request, lambda: encode(found.overlay(to_pixels(images[0][1])), form))
    return Response(drawing, media_type=f"image/{form.lower()}")


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
    if not several and isinstance(answers[0], BaseException):
        raise refusal_of(answers[0])

    def answer() -> JSONResponse:
        rows = [_row(name, answer, described) for (name, _), answer in zip(images, answers, strict=True)]
        return JSONResponse(versioned(served, **{plural: rows}))

    # The masks of large photos take long to write, which other requests would wait for.
    return await aside(request, answer) if served.finds_regions else answer()


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
    responses=answered(ExplainAnswer, None, *DRAWN),
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
    form = _drawing(request)
    if form is None:
        return JSONResponse(versioned(served, **found.to_json(), box=list(found.box), size=list(found.photo.shape[:2])))
    drawing = await aside(request, lambda: encode(found.draw(style=style), form))
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
    heads = None if served.finds_regions else classifier.predictor.shown_heads
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
        "regions": shown_by(classifier) if served.finds_regions else None,
        "maps": None if heads is None else {"classes": names_each, "layers": list(heads)},
        "scores": dict(classifier.provenance.scores),
        "doubt": classifier.doubt(),
    }
