"""The images of a request, in whatever form it has them: bytes alone, the files of a form, or base64 in JSON."""

import base64
import binascii
from collections.abc import AsyncGenerator
from typing import Annotated, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from vitral.serving.limits import MOST_IMAGES
from vitral.serving.refusals import malformed
from vitral.serving.visit import body_of

LONE = "image"  # the name of an image that has none
LONGEST_NAME = 200  # characters
MOST_FIELDS = 16  # of a form, besides its files
SCHEMAS = "#/components/schemas/"  # where OpenAPI has the forms of JSON

Body = TypeVar("Body", bound=BaseModel)
Named = tuple[str, bytes]  # an image's name and its encoded bytes


def decoded(text: object) -> object:
    """Return the bytes of base64 text, with or without what a browser puts before it."""
    if not isinstance(text, str):
        return text
    try:
        return base64.b64decode(text.partition(";base64,")[2] or text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError("is not base64") from error


Base64 = Annotated[bytes, BeforeValidator(decoded, json_schema_input_type=str)]


class NamedImage(BaseModel):
    """An image with its name."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(default=LONE, max_length=LONGEST_NAME)
    data: Base64


class JsonImages(BaseModel):
    """Several images in JSON, each as base64 or as an object of name and data."""

    model_config = ConfigDict(extra="forbid")

    images: list[NamedImage | Base64] = Field(min_length=1, max_length=MOST_IMAGES)


def parsed(kind: type[Body], content: bytes) -> Body:
    """Return a JSON body as what it should be.

    Raises:
        RequestRefused: It is not.
    """
    try:
        return kind.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise malformed(
            f"The JSON of the request is not as it should be: {place + ': ' if place else ''}{first['msg']}."
        ) from None


def reference(kind: type[BaseModel]) -> dict[str, str]:
    """Return what stands for a form of JSON in the description of a route."""
    return {"$ref": f"{SCHEMAS}{kind.__name__}"}


def kind_of(request: Request) -> str:
    """Return the type of a request's body, without its parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def images_of(request: Request) -> tuple[list[Named], bool]:
    """Return the images of a request with their names, and whether there may be several: those of a form or of JSON.

    Raises:
        RequestRefused: It cannot be read, or has none.
    """
    content = await body_of(request)
    if kind_of(request) == "multipart/form-data":
        return await _of_form(request, content), True
    if kind_of(request) == "application/json":
        listed = parsed(JsonImages, content).images
        return [
            (f"{LONE} {number}", image) if isinstance(image, bytes) else (image.name, image.data)
            for number, image in enumerate(listed)
        ], True
    return [(LONE, content)], False


async def _of_form(request: Request, content: bytes) -> list[Named]:
    async def stream() -> AsyncGenerator[bytes, None]:
        yield content

    parser = MultiPartParser(request.headers, stream(), max_files=MOST_IMAGES, max_fields=MOST_FIELDS)
    parser.spool_max_size = len(content) + 1  # in memory, where the body is already: the disk may be read-only
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise malformed(f"The form cannot be read: {error.message}") from None
    try:
        files = [part for _, part in form.multi_items() if isinstance(part, UploadFile)]
        if not files:
            raise malformed("The form has no files; send each image as a file, such as -F image=@photo.jpg.")
        return [((file.filename or LONE)[:LONGEST_NAME], await file.read()) for file in files]
    finally:
        await form.close()
