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
TO_STANDARD = str.maketrans("-_", "+/")  # from base64 for addresses
BOM = b"\xef\xbb\xbf"  # which Windows' programs put before UTF-8
STRIPPED = b"\r\n\0"  # what curl's -d takes out of a file
FORM_TEXT = "application/x-www-form-urlencoded"  # the type that curl gives to all that it is not told of
MOST_FIELDS = 16  # of a form, besides its files
SCHEMAS = "#/components/schemas/"  # where OpenAPI has the forms of JSON

Body = TypeVar("Body", bound=BaseModel)
Named = tuple[str, bytes]  # an image's name and its encoded bytes


def decoded(text: object) -> object:
    """Return the bytes of base64 text in lines or in one, with or without what a browser puts before it."""
    if not isinstance(text, str):
        return text
    plain = "".join((text.partition(";base64,")[2] or text).split()).translate(TO_STANDARD)
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError("what should be an image's bytes is not base64") from error


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
        return kind.model_validate_json(content.removeprefix(BOM))
    except ValidationError as error:
        every = error.errors(include_url=False, include_input=False)
        ours = (each for each in every if each["type"] == "value_error")  # says more than what else it could have been
        first = next(ours, every[0])
        place = ".".join(str(part) for part in first["loc"] if str(part).isidentifier() or isinstance(part, int))
        message = first["msg"].removeprefix("Value error, ")
        raise malformed(
            f"The JSON of the request is not as it should be: {place + ': ' if place else ''}{message}."
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
    _check_meant(kind_of(request), content)
    return [(LONE, content)], False


def _check_meant(kind: str, content: bytes) -> None:
    """Refuse a body that is no image because of how its client sent it.

    Raises:
        RequestRefused: It is JSON of another type, or an image that curl took for text.
    """
    if content.lstrip()[:1] == b"{":
        raise malformed("The body is JSON; say so by the header 'Content-Type: application/json'.")
    if kind == FORM_TEXT and not any(byte in content for byte in STRIPPED):
        raise malformed("The image has lost bytes, as by curl's -d; send the file by --data-binary @photo.jpg.")


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
