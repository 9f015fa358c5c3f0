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


class FoundMask(BaseModel):
    """A mask in COCO's compressed run lengths, as pycocotools reads it."""

    size: list[int] = Field(min_length=2, max_length=2, description="Height and width, pixels of the photo.")
    counts: str


class FoundRegion(BaseModel):
    """A region as COCO's results have it, in the photo's own pixels, the right way up."""

    label: str
    category_id: int = Field(ge=0, description="The number of the class in the classifier's order.")
    bbox: list[float] = Field(min_length=4, max_length=4, description="Left, top, width and height, pixels.")
    area: float = Field(ge=0, description="Pixels: of the mask, or else of the box.")
    score: Probability
    segmentation: FoundMask | None = Field(default=None, description="Left out where boxes are found.")


class PhotoRegions(BaseModel):
    """What is where in a photo: of things how many of each class, of a class for every pixel the share of each."""

    source: str
    height: int
    width: int
    counts: dict[str, int] | None = None
    shares: dict[str, Probability] | None = None
    regions: list[FoundRegion]


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

    predictions: list[PredictedImage | PhotoRegions | RefusedImage]


class FeaturesAnswer(VersionedAnswer):
    """The features of each image."""

    features: list[ImageFeatures | RefusedImage]


class ExplainAnswer(VersionedAnswer, RankedClass):
    """Where the network looked."""

    top: list[RankedClass]
    method: str
    relevance: list[list[float]]
    box: list[float] = Field(min_length=4, max_length=4)


class ShownRegions(BaseModel):
    """How a classifier's regions are shown."""

    threshold: Probability | None = Field(description="How sure they must be; null where there is one for each class.")
    colours: list[str] = Field(description="The colour of each class, as CSS has it.")
    ground: list[int] = Field(description="Classes that are left as the photo is.")


class ServedModel(BaseModel):
    """A classifier in service; "regions" is null where it answers with classes of photos as a whole."""

    name: str
    version: str
    classes: list[str]
    task: str
    image_size: list[int] = Field(min_length=2, max_length=2)
    regions: ShownRegions | None


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


class CornerBox(BaseModel):
    """A box, pixels of the photo."""

    xmin: int
    ymin: int
    xmax: int
    ymax: int


class ScoredRegion(ScoredClass):
    """A region, as Hugging Face's tasks have them: object detection the box, image segmentation the mask, a PNG in base64."""

    box: CornerBox
    mask: str | None = None


class OutputData(BaseModel):
    """A tensor of an answer: probabilities, or texts "probability:index:class"; or for each photo its regions as JSON."""

    name: Literal["probabilities", "regions"]
    datatype: Literal["FP32", "BYTES"]
    shape: list[int] = Field(min_length=1, max_length=2)
    data: list[float | str]


class InferenceAnswer(BaseModel):
    """The probabilities of images, or what is in them; as bytes after the JSON where the request wants that."""

    id: str | None = None
    model_name: str
    model_version: str
    outputs: list[OutputData]


ERRORS: dict[int | str, dict[str, Any]] = {"default": {"model": ErrorAnswer, "description": "Why there is no answer."}}


def answered(model: Any, value: object = None, *others: str) -> dict[int | str, dict[str, Any]]:  # noqa: ANN401  # a type
    """Return what OpenAPI says of an answer: its form as JSON, an example, and types of an answer that is no JSON."""
    shown: dict[str, Any] = {} if value is None else {"application/json": {"example": value}}
    content = shown | {kind: {"schema": {"type": "string", "format": "binary"}} for kind in others}
    return {200: {"model": model, **({"content": content} if content else {})}}
