"""The JSON of every answer, as OpenAPI describes it: answers may have more than is named here, never less."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

Probability = Annotated[float, Field(ge=0, le=1)]


class ErrorAnswer(BaseModel):
    """Why a request has no answer; every error of every route is one of these."""

    error: str
    code: str
    request_id: str


class RankedClass(BaseModel):
    """A class and its probability."""

    label: str
    probability: Probability


class RefusedImage(BaseModel):
    """Why one of several images has no answer."""

    source: str
    error: str
    code: str


class PredictedImage(RankedClass):
    """What is in an image; whether that is sure and known only where the classifier can tell."""

    source: str
    top: list[RankedClass]
    sure: bool | None = None
    known: bool | None = None
    novelty: float | None = None
    abstain: bool | None = None


class ImageFeatures(BaseModel):
    """The features of an image."""

    source: str
    features: list[float]


class VersionedAnswer(BaseModel):
    """An answer with what gave it."""

    model: str
    version: str


class PredictAnswer(VersionedAnswer):
    """What is in each image."""

    predictions: list[PredictedImage | RefusedImage]


class FeaturesAnswer(VersionedAnswer):
    """The features of each image."""

    features: list[ImageFeatures | RefusedImage]


class ExplainAnswer(VersionedAnswer, RankedClass):
    """Where the network looked."""

    top: list[RankedClass]
    method: str
    relevance: list[list[float]]
    box: list[float] = Field(min_length=4, max_length=4)


class ServedModel(BaseModel):
    """A classifier in service."""

    name: str
    version: str
    classes: list[str]
    task: str
    image_size: list[int] = Field(min_length=2, max_length=2)


class ModelsAnswer(BaseModel):
    """The classifiers in service."""

    models: list[ServedModel]


class ListedPhoto(BaseModel):
    """A photo of which the answer was not sure, and its class as a person sees it; null where nobody has named it."""

    photo: str
    top: list[RankedClass]
    label: str | None


class CollectedAnswer(BaseModel):
    """The collected photos, the classes to choose from, and the command that trains on those that have a name."""

    photos: list[ListedPhoto]
    classes: list[str]
    command: str


class ScoredClass(BaseModel):
    """A class and its probability, as Hugging Face's task has them."""

    label: str
    score: Probability


class OutputData(BaseModel):
    """A tensor of an answer: probabilities, or texts "probability:index:class"."""

    name: Literal["probabilities"]
    datatype: Literal["FP32", "BYTES"]
    shape: list[int] = Field(min_length=2, max_length=2)
    data: list[float | str]


class InferenceAnswer(BaseModel):
    """The probabilities of images; as bytes after the JSON where the request wants that."""

    id: str | None = None
    model_name: str
    model_version: str
    outputs: list[OutputData]


ERRORS: dict[int | str, dict[str, Any]] = {"default": {"model": ErrorAnswer, "description": "Why there is no answer."}}


def answered(model: Any, value: object = None, *others: str) -> dict[int | str, dict[str, Any]]:  # noqa: ANN401  # a type
    """Return what OpenAPI says of an answer.

    Args:
        model: Its form as JSON.
        value: An example of it; None for none.
        others: Types of an answer that is no JSON.
    """
    shown: dict[str, Any] = {} if value is None else {"application/json": {"example": value}}
    content = shown | {kind: {"schema": {"type": "string", "format": "binary"}} for kind in others}
    return {200: {"model": model, **({"content": content} if content else {})}}
