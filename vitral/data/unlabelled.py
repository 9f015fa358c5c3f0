"""Images regardless of labels: from any dataset, and from files and folders of images."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from vitral.data.archive import archive_images, is_archive
from vitral.data.assemble import Opening
from vitral.data.folder import Files
from vitral.data.open import is_built_in, is_data_name, list_data, open_data
from vitral.data.source import Source
from vitral.data.stored import Store, StoredImages
from vitral.errors import DataError, ImageError
from vitral.events import Listener, ignore
from vitral.images.decode import EXTENSIONS, Pixels, read_image
from vitral.paths import is_folder, is_regular, walk


@dataclass(frozen=True)
class Unlabelled:
    """An image that is read when it is needed.

    Attributes:
        name: for people: its path, or archive and member.
        read: returns its RGB pixels, or raises ImageError.
    """

    name: str
    read: Callable[[], Pixels]


def list_unlabelled(spec: str, listener: Listener = ignore) -> list[Unlabelled]:
    """Return the images that a user names, none of them read yet.

    Args:
        spec: an image file; a folder or archive of images, in whatever sub-folders; or anything else that `open_data` takes:
            a table, shards, an address, hf:OWNER/NAME, "digits", all splits of it.
        listener: receives the progress of listing.

    Raises:
        DataError: a dataset that cannot be read, or is endless.
        ImageError: a folder or archive without images.
    """
    path = Path(spec)
    if is_folder(path):
        return _of_folder(path, listener)
    if is_archive(path) and is_regular(path):
        return _require(_of_store(*archive_images(path)) or _of_data(spec, listener), path)
    if is_data_name(spec):
        return _of_data(spec, listener)
    return [Unlabelled(spec, partial(read_image, path))]


def _of_folder(folder: Path, listener: Listener) -> list[Unlabelled]:
    walked = walk(folder)
    paths = [*(file.path for file in walked.files), *walked.broken]  # a broken link is reported when it is read
    names = sorted(name for name in paths if name.lower().endswith(EXTENSIONS))
    try:
        images = _of_store(Files(folder, names), range(len(names))) if names else _of_data(str(folder), listener)
    except DataError:
        images = []
    return _require(images, folder)


def _require(images: list[Unlabelled], path: Path) -> list[Unlabelled]:
    if not images:
        raise ImageError(f"'{path}' holds no images; their names end in {', '.join(EXTENSIONS)}.")
    return images


def _of_data(spec: str, listener: Listener) -> list[Unlabelled]:
    if is_built_in(spec):
        sources = list(open_data(spec).splits.values())
        if any(source.endless for source in sources):
            raise DataError(f"'{spec}' is endless; name a file or a folder.")
        return [image for source in sources for image in _of_source(source)]
    listing = list_data(spec, Opening(listener=listener))
    indices = [entry.store_index for entries in listing.entries.values() for entry in entries]
    bad = [Unlabelled(image.path, partial(_refuse, image.reason)) for image in listing.bad]
    return [*_of_store(listing.store, indices), *bad]


def _of_store(store: Store, indices: Sequence[int]) -> list[Unlabelled]:
    return _of_source(StoredImages(store, indices, [0] * len(indices)))


def _of_source(source: Source) -> list[Unlabelled]:
    return [Unlabelled(source.describe(index), partial(source.image, index)) for index in range(len(source))]


def _refuse(reason: str) -> Pixels:
    raise ImageError(f"{reason}.")
