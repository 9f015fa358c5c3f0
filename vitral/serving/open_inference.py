"""The Open Inference Protocol, version 2, over REST, with its binary and its classification extension.

Source: github.com/kserve/open-inference-protocol, specification/protocol/inference_rest.md, and Triton's protocol extensions
extension_binary_data.md and extension_classification.md. As in Triton and OpenVINO's server, an encoded image is an element of
a BYTES tensor; in JSON it is base64. Photos differ in their number of regions, which no tensor of numbers holds: of each photo
they are an element of a BYTES tensor, the JSON of /v1/predict.
"""

import json
import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from vitral import __version__
from vitral.inference.ranking import rank
from vitral.serving.answers import InferenceAnswer, answered
from vitral.serving.limits import MOST_CLASSES, MOST_IMAGES
from vitral.serving.ours import body
from vitral.serving.probes import readyz, service_of
from vitral.serving.reading import LONE, decoded, parsed, reference
from vitral.serving.refusals import RequestRefused, malformed, refusal_of
from vitral.serving.served import Given, Served
from vitral.serving.visit import answers_of, aside, body_of

router = APIRouter(prefix="/v2", tags=["Open Inference Protocol"])

EXTENSIONS = ["binary_tensor_data", "classification"]
HEADER_LENGTH = "inference-header-content-length"  # of the JSON before the tensors' bytes
LENGTH_BYTES = 4  # before each element of a BYTES tensor, little-endian
PROBABILITIES = "probabilities"
REGIONS = "regions"
MOST_DIGITS = 9
LARGEST_INPUT = 10_000  # of the values of a prepared image, which are within a few units, or within 255 without a scale


class TensorParameters(BaseModel):
    """Parameters of a tensor that are understood; others are ignored, as the protocol has it."""

    binary_data_size: int | None = Field(default=None, ge=0)
    binary_data: bool | None = None
    classification: int | None = Field(default=None, ge=1, le=MOST_CLASSES)


class InputTensor(BaseModel):
    """A tensor of a request."""

    name: str
    shape: list[int] = Field(min_length=1, max_length=4)
    datatype: Literal["BYTES", "UINT8", "FP32"]
    parameters: TensorParameters = TensorParameters()
    data: list[Any] | None = None


class OutputTensor(BaseModel):
    """What a request wants."""

    name: Literal["probabilities", "regions"]
    parameters: TensorParameters = TensorParameters()


class RequestParameters(BaseModel):
    """Parameters of a request that are understood."""

    binary_data_output: bool = False


class InferenceRequest(BaseModel):
    """The JSON of a request."""

    id: str | None = None
    inputs: list[InputTensor] = Field(min_length=1, max_length=1)
    outputs: list[OutputTensor] = Field(default_factory=list, max_length=1)
    parameters: RequestParameters = RequestParameters()


@dataclass(frozen=True)
class Wanted:
    """What a request gives and wants.

    Attributes:
        classes: How many classes to name for each image; None for all probabilities.
        binary: Whether the answer's tensor is bytes after the JSON.
    """

    images: list[Given]
    id: str | None = None
    classes: int | None = None
    binary: bool = False


@router.get("")
async def server_metadata() -> dict[str, Any]:
    """Return what serves."""
    return {"name": "vitral", "version": __version__, "extensions": EXTENSIONS}


@router.get("/health/live")
async def live() -> dict[str, bool]:
    """Whether the process lives."""
    return {"live": True}


@router.get("/health/ready")
async def ready(request: Request) -> dict[str, bool]:
    """Whether every model takes requests."""
    await readyz(request)
    return {"ready": True}


@router.get("/models/{name}/versions/{version}")
@router.get("/models/{name}")
async def model_metadata(request: Request, name: str, version: str | None = None) -> dict[str, Any]:
    """Return a model's inputs and outputs."""
    served = _model(request, name, version)
    classes = len(served.classifier.class_names)
    output = {"name": PROBABILITIES, "datatype": "FP32", "shape": [-1, classes]}
    if served.finds_regions:
        output = {"name": REGIONS, "datatype": "BYTES", "shape": [-1]}
    return {
        "name": served.name,
        "versions": [served.version],
        "platform": "vitral",
        "inputs": [
            {
                "name": "image",
                "datatype": "BYTES",
                "shape": [-1],
                "parameters": {"content": "encoded images; base64 in JSON"},
            }
        ],
        "outputs": [output],
    }


@router.get("/models/{name}/versions/{version}/ready")
@router.get("/models/{name}/ready")
async def model_ready(request: Request, name: str, version: str | None = None) -> dict[str, Any]:
    """Whether a model takes requests."""
    served = _model(request, name, version)
    await readyz(request)
    return {"name": served.name, "ready": True}


INFER = body(
    {
        "application/json": {
            "schema": reference(InferenceRequest),
            "example": {
                "inputs": [{"name": "image", "shape": [1], "datatype": "BYTES", "data": ["/9j/4AAQSkZJRg..."]}]
            },
        }
    }
)
ANSWERED = answered(InferenceAnswer, None, "application/octet-stream")


@router.post("/models/{name}/versions/{version}/infer", openapi_extra=INFER, responses=ANSWERED)
@router.post("/models/{name}/infer", openapi_extra=INFER, responses=ANSWERED)
async def infer(request: Request, name: str, version: str | None = None) -> Response:
    """Return the probabilities of images, or what is in them."""
    served = _model(request, name, version)
    wanted = wanted_of(await body_of(request), request.headers.get(HEADER_LENGTH), served)
    answers = await answers_of(request, served, served.answers, wanted.images)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise refusal_of(answer)
    return await aside(request, lambda: _response(served, wanted, answers))


def _model(request: Request, name: str, version: str | None) -> Served:
    served = service_of(request).model(name)
    if version not in (None, served.version):
        raise RequestRefused(404, "no_such_version", f"'{name}' is in version {served.version} here.")
    return served


def wanted_of(content: bytes, header_length: str | None, served: Served) -> Wanted:
    """Return what a request gives and wants.

    Its body is JSON, and after it bytes of tensors, or an encoded image alone. Its header says how long the JSON is: None where
    it does not, 0 for an image alone.

    Raises:
        RequestRefused: It cannot be understood.
    """
    if header_length is None:
        length = len(content)
    elif header_length.isascii() and header_length.isdigit() and len(header_length) <= MOST_DIGITS:
        length = int(header_length)
    else:
        raise malformed("Inference-Header-Content-Length is a whole number of bytes.")
    if length > len(content):
        raise malformed("The body is shorter than Inference-Header-Content-Length says.")
    if length == 0:
        return Wanted([content], binary=True)
    given = parsed(InferenceRequest, content[:length])
    named = REGIONS if served.finds_regions else PROBABILITIES
    if given.outputs and given.outputs[0].name != named:
        raise malformed(f"The output of '{served.name}' is '{named}', not '{given.outputs[0].name}'.")
    output = given.outputs[0].parameters if given.outputs else TensorParameters()
    if served.finds_regions and output.classification is not None:
        raise malformed(f"Photos of '{served.name}' {served.labelled}; leave classification out.")
    binary = given.parameters.binary_data_output if output.binary_data is None else output.binary_data
    return Wanted(_images(given.inputs[0], content[length:], served), given.id, output.classification, binary)


def _images(tensor: InputTensor, rest: bytes, served: Served) -> list[Given]:
    """Return the images in a tensor, whose bytes are `rest` where it has no data of its own."""
    count = tensor.shape[0]
    if not 1 <= count <= MOST_IMAGES or min(tensor.shape) < 1:
        raise malformed(f"The shape {tensor.shape} is not that of 1 to {MOST_IMAGES} images.")
    if tensor.data is None and tensor.parameters.binary_data_size not in (None, len(rest)):
        raise malformed(
            f"binary_data_size is {tensor.parameters.binary_data_size}, and {len(rest)} bytes follow the JSON."
        )
    if tensor.datatype == "BYTES":
        if math.prod(tensor.shape) != count:
            raise malformed("A tensor of encoded images has one element for each: shape [N], or [N, 1].")
        elements = _elements(rest, count) if tensor.data is None else [_element(text) for text in _flat(tensor.data)]
        if len(elements) != count:
            raise malformed(f"The tensor has {len(elements)} elements, and the shape {tensor.shape}.")
        return list(elements)
    return _arrays(tensor, rest, served)


def _elements(rest: bytes, count: int) -> list[bytes]:
    """Return the elements of a BYTES tensor; the whole of it where it is one image without a length before it."""
    found: list[bytes] = []
    place = 0
    while place + LENGTH_BYTES <= len(rest):
        end = place + LENGTH_BYTES + int.from_bytes(rest[place : place + LENGTH_BYTES], "little")
        found.append(rest[place + LENGTH_BYTES : end])
        place = end
    if place == len(rest) and len(found) == count:
        return found
    if count == 1:
        return [rest]
    raise malformed("The bytes after the JSON are not elements with their lengths before them.")


def _element(text: Any) -> bytes:  # noqa: ANN401  # a JSON value
    try:
        found = decoded(text)
    except ValueError:
        found = None
    if not isinstance(found, bytes):
        raise malformed("An element of a BYTES tensor is an encoded image in base64.")
    return found


def _flat(data: list[Any]) -> list[Any]:
    return [each for part in data for each in (_flat(part) if isinstance(part, list) else [part])]


def _arrays(tensor: InputTensor, rest: bytes, served: Served) -> list[Given]:
    """Return images as pixels, UINT8 [N, height, width, 3], or as the network's input, FP32 [N, 3, height, width]."""
    height, width = served.image_size
    pixels = tensor.datatype == "UINT8"
    if len(tensor.shape) != 4 or (tensor.shape[3] != 3 if pixels else tensor.shape[1:] != [3, height, width]):
        wanted = "[N, height, width, 3] of UINT8" if pixels else f"[N, 3, {height}, {width}] of FP32"
        raise malformed(f"Images are {wanted}, not {tensor.shape}.")
    kind = np.dtype(np.uint8 if pixels else "<f4")
    try:
        flat = np.frombuffer(rest, kind) if tensor.data is None else _numbers(tensor.data, kind)
        array = flat.reshape(tensor.shape)
    except (ValueError, TypeError, OverflowError):
        raise malformed(f"The tensor's data are not {tensor.datatype} of shape {tensor.shape}.") from None
    if pixels:
        return list(array)
    if served.finds_regions:
        raise malformed("Regions are found in photos of a size of their own: BYTES or UINT8, not FP32.")
    if not (np.abs(array) <= LARGEST_INPUT).all():  # the network would give no numbers, as if it were damaged
        raise malformed(f"A prepared image has finite values between -{LARGEST_INPUT:,} and {LARGEST_INPUT:,}.")
    return list(torch.from_numpy(array.astype(np.float32)))


def _numbers(data: list[Any], kind: np.dtype[Any]) -> np.ndarray:
    """Return values of JSON, of which none is changed: a pixel of 0.7 would become 0.

    Raises:
        ValueError: They are not of the kind.
    """
    found = np.array(_flat(data))
    if found.dtype.kind not in ("iu" if kind.kind == "u" else "iuf"):
        raise ValueError(found.dtype)
    return np.array(found.tolist(), kind)  # which is refused where a value is too large


def _texts(name: str, shape: list[int], values: list[str]) -> tuple[dict[str, Any], list[str], bytes]:
    """Return a tensor of texts: its description, its elements, and these as bytes."""
    content = b"".join(len(each).to_bytes(LENGTH_BYTES, "little") + each for each in map(str.encode, values))
    return {"name": name, "datatype": "BYTES", "shape": shape}, values, content


def _tensor(served: Served, wanted: Wanted, answers: list[Any]) -> tuple[dict[str, Any], list[Any], bytes]:
    """Return the answers as a tensor: its description, its elements, and these as bytes."""
    if served.finds_regions:
        found = [json.dumps(served.regions(LONE, answer, None).to_json()) for answer in answers]
        return _texts(REGIONS, [len(found)], found)
    probabilities = np.stack([row.numpy() for row, _ in answers]).astype("<f4")
    if wanted.classes is None:
        tensor = {"name": PROBABILITIES, "datatype": "FP32", "shape": list(probabilities.shape)}
        return tensor, probabilities.ravel().tolist(), probabilities.tobytes()
    names = served.classifier.class_names
    rows = [
        [f"{value:f}:{index}:{names[index]}" for index, value in rank(row, wanted.classes)] for row in probabilities
    ]
    return _texts(PROBABILITIES, [len(rows), len(rows[0])], [text for row in rows for text in row])


def _response(served: Served, wanted: Wanted, answers: list[Any]) -> Response:
    tensor, values, content = _tensor(served, wanted, answers)
    told = {"model_name": served.name, "model_version": served.version}
    if wanted.id is not None:
        told["id"] = wanted.id
    if not wanted.binary:
        return JSONResponse({**told, "outputs": [{**tensor, "data": values}]})
    header = json.dumps({**told, "outputs": [{**tensor, "parameters": {"binary_data_size": len(content)}}]}).encode()
    return Response(header + content, media_type="application/octet-stream", headers={HEADER_LENGTH: str(len(header))})
