"""The owner's side of what was collected: photos listed, shown, named and removed.

Another site's page cannot write here: methods and types of these requests are such that a browser asks for leave first, which
no site gets, and a request that says where it comes from must come from this server's own pages.
"""

from functools import partial
from urllib.parse import SplitResult, urlsplit

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict

from vitral.advice import argument, call
from vitral.images.decode import read_image
from vitral.images.drawing import encode, thumbnail
from vitral.serving.answers import CollectedAnswer, answered
from vitral.serving.collected import Collection
from vitral.serving.limits import is_loopback
from vitral.serving.ours import BINARY, body
from vitral.serving.probes import service_of
from vitral.serving.reading import kind_of, parsed, reference
from vitral.serving.refusals import RequestRefused
from vitral.serving.visit import aside, body_of

router = APIRouter(prefix="/v1/review", tags=["review"])
SIDE = 640  # pixels of the longer side of a photo as it is shown
LISTED = {
    "photos": [{"photo": "0f3a.jpeg", "top": [{"label": "cat", "probability": 0.41}], "label": None}],
    "classes": ["cat", "dog"],
    "command": "vitral.finetune('collected')",
}


class PhotoName(BaseModel):
    """The class that a person gives to a photo; null takes it back."""

    model_config = ConfigDict(extra="forbid")

    label: str | None


def _collection_of(request: Request) -> Collection:
    """Return what is collected.

    Raises:
        RequestRefused: Nothing is, or the request does not come from this server's own pages.
    """
    service = service_of(request)
    if service.collection is None:
        raise RequestRefused(
            404, "not_collecting", f"This server collects no photos; its owner starts it with {argument('collect')}."
        )
    host, origin = request.headers.get("host", ""), request.headers.get("origin")
    if origin is not None and _place(origin).netloc != host:
        raise RequestRefused(403, "other_origin", "Photos are named on this server's own pages alone.")
    # A name that another site has let point to this machine would make its pages ours.
    if service.local and not is_loopback(_place(f"//{host}").hostname or ""):
        raise RequestRefused(
            403, "other_host", "Without a token, photos are named at this machine's own address alone."
        )
    return service.collection


def _place(address: str) -> SplitResult:
    try:
        return urlsplit(address)
    except ValueError:
        return urlsplit("")


@router.get("", responses=answered(CollectedAnswer, LISTED))
async def collected_photos(request: Request) -> JSONResponse:
    """List the collected photos, the least sure first, and then those that have a name."""
    collection = _collection_of(request)
    photos = [
        {
            "photo": name,
            "top": [{"label": each, "probability": probability} for each, probability in photo.top],
            "label": label,
        }
        for name, photo, label in await aside(request, collection.listed)
    ]
    classes = list(service_of(request).model(None).classifier.class_names)
    command = call(f"vitral.finetune({str(collection.folder)!r})")
    return JSONResponse({"photos": photos, "classes": classes, "command": command})


@router.get(
    "/labels.csv", response_class=Response, responses={200: {"content": {"text/csv": {"schema": {"type": "string"}}}}}
)
async def collected_table(request: Request) -> Response:
    """Return the table of the photos that have a name, in the form of corrections of labels, by which data are read."""
    return Response(await aside(request, _collection_of(request).table), media_type="text/csv")


@router.get("/{photo}", response_class=Response, responses={200: {"content": {"image/jpeg": {"schema": BINARY}}}})
async def collected_photo(request: Request, photo: str) -> Response:
    """Return a photo, small and upright, as a JPEG."""
    collection = _collection_of(request)
    shown = await aside(request, lambda: encode(thumbnail(read_image(collection.photo(photo)), SIDE), "JPEG"))
    return Response(shown, media_type="image/jpeg")


@router.put(
    "/{photo}", openapi_extra=body({"application/json": {"schema": reference(PhotoName), "example": {"label": "cat"}}})
)
async def name_photo(request: Request, photo: str) -> JSONResponse:
    """Give a photo its class, as a person sees it."""
    collection = _collection_of(request)
    if kind_of(request) != "application/json":
        raise RequestRefused(415, "not_json", 'Send the class as JSON: {"label": "cat"}.')
    label = parsed(PhotoName, await body_of(request)).label
    if label is not None and label not in service_of(request).model(None).classifier.class_names:
        raise RequestRefused(422, "no_such_class", f"The classifier has no class '{label[:80]}'.")
    await aside(request, partial(collection.name, photo, label))
    return JSONResponse({"photo": photo, "label": label})


@router.delete("/{photo}")
async def remove_photo(request: Request, photo: str) -> JSONResponse:
    """Delete a photo."""
    await aside(request, partial(_collection_of(request).remove, photo))
    return JSONResponse({"photo": photo})
