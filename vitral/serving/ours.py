"""Vitral's own form: /v1/predict, /v1/models."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from vitral.classifier.prediction import Prediction
from vitral.serving.limits import MOST_CLASSES
from vitral.serving.probes import service_of
from vitral.serving.refusals import refusal_of
from vitral.serving.served import Served
from vitral.serving.visit import answers_of, body_of

router = APIRouter(prefix="/v1", tags=["v1"])

Top = Annotated[int, Query(ge=1, le=MOST_CLASSES, description="Classes to name for each image.")]
Model = Annotated[str | None, Query(description="The classifier's name; the first if left out.")]


@router.post("/predict")
async def predict(request: Request, model: Model = None, top: Top = 5) -> dict[str, Any]:
    """Say what is in images, with probabilities."""
    served = service_of(request).model(model)
    content = await body_of(request)
    (answer,) = await answers_of(request, served, served.answers, [content])
    if isinstance(answer, BaseException):
        raise refusal_of(answer) from answer
    return {
        "model": served.name,
        "version": served.version,
        "predictions": [described(served.prediction("image", answer, top))],
    }


@router.get("/models")
async def models(request: Request) -> dict[str, Any]:
    """List the classifiers: names, classes, versions."""
    return {"models": [about(served) for served in service_of(request).models.values()]}


def about(served: Served) -> dict[str, Any]:
    """Return what is told of a classifier."""
    classifier = served.classifier
    return {
        "name": served.name,
        "version": served.version,
        "classes": list(classifier.class_names),
        "network": classifier.predictor.describe(),
        "image_size": list(classifier.preprocessing.image_size),
        "computed_by": classifier.predictor.computed_by,
        "batch": served.answers.most,
    }


def described(prediction: Prediction) -> dict[str, Any]:
    """Return a prediction as JSON, with whether it had better be left to a person."""
    told = prediction.to_json()
    if prediction.sure is not None or prediction.known is not None:
        told["abstain"] = prediction.sure is False or prediction.known is False
    return told
