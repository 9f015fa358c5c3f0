"""Images regardless of labels: from any dataset, and from files and folders of images."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

from vitral.data.archive import archive_images, is_archive
from vitral.data.image_files import Arrange, LazyImage, files_in, of_file, read_ahead, require, unreadable
from vitral.data.listing import Opening
from vitral.data.names import is_saved
from vitral.data.open import is_data_name, is_opened_whole, list_data, open_data
from vitral.data.source import BadImage, Source
from vitral.data.stored import Store, StoredImages
from vitral.data.web_image import is_web_image, web_image
from vitral.errors import DataError, ImageError
from vitral.events import Listener, ignore
from vitral.images.decode import Pixels
from vitral.paths import files_below, is_folder, is_regular, local_path, look_at, nearest_path

LONGEST = 4096  # characters of a path
SHOWN = 40  # characters of what is longer
PACKED = (".tar", ".zip", ".parquet")  # what a folder without image files may hold them in


def list_unlabelled(spec: str, listener: Listener = ignore) -> list[LazyImage]:
    """Return the images that a user names, none of them read yet; those of a folder in order of path.

    Args:
        spec: An image file, or the file, http or https address of one; a folder or archive of images, in whatever sub-folders;
            or anything else that `open_data` takes, with all its splits: a table, shards, an address, hf:OWNER/NAME, "digits".
        listener: Receives the progress of listing.

    Raises:
        DataError: a dataset that cannot be read, or is endless.
        ImageError: a folder or archive without images.
    """
    return list(stream_unlabelled(spec, listener, sorted))


def stream_unlabelled(spec: str, listener: Listener = ignore, arrange: Arrange = iter) -> Iterator[LazyImage]:
    """Give the images that a user names one by one; of a folder, only the names of one folder in it are in memory.

    The order is always the same; in a folder, files come before what is in further folders. Arguments and errors are those of
    `list_unlabelled`, and `arrange` that of `files_in`.
    """
    path, local = Path(spec), local_path(spec)
    if local != spec and look_at(local) is not None:
        yield from stream_unlabelled(local, listener, arrange)
    elif spec and is_folder(path):
        yield from require(_of_folder(path, listener, arrange), path)
    elif is_archive(path) and is_regular(path):
        store, indices = archive_images(path)
        yield from require(_of_store(store, indices) if indices else _of_data(spec, listener), path)
    elif is_web_image(spec):
        yield web_image(spec)
    elif is_data_name(spec):
        yield from _of_data(spec, listener)
    elif not spec or look_at(path) is None:
        yield unreadable(spec, _missing(spec))
    else:
        yield of_file(path, spec)


def _missing(spec: str) -> str:
    """Return the sentence about a name under which nothing is."""
    if not spec:
        return "An empty name is no image; name a file or a folder."
    if len(spec) > LONGEST:
        start = f"'{spec[:SHOWN]}…'"
        return f"{start} cannot be read: no file has a name of {len(spec):,} characters; give encoded images as bytes."
    if Path(spec).is_symlink():
        return f"'{spec}' cannot be read: it is a link that leads nowhere."
    return f"'{spec}' cannot be read: it is not there.{nearest_path(spec)}"


def check_named(spec: str) -> None:
    """Refuse, by an ImageError, a name that is neither a file nor a folder nor the name of data, such as a mistyped path."""
    with contextlib.suppress(OSError, ValueError):  # a name that no path may have
        if Path(spec).exists():
            return
    if not is_data_name(spec):
        raise ImageError(
            f"'{spec}' is not there: no file, folder, archive or dataset has this name.{nearest_path(spec)}"
        )


def _of_folder(folder: Path, listener: Listener, arrange: Arrange) -> Iterator[LazyImage]:
    files = files_in(folder, arrange, listener)
    first = next(files, None)
    if first is not None:
        yield from chain([first], files)
        return
    try:
        yield from _of_data(str(folder), listener)
    except DataError:
        if is_saved(folder) or any(name.lower().endswith(PACKED) for name in files_below(folder)):
            raise


def _of_data(spec: str, listener: Listener) -> Iterator[LazyImage]:
    if is_opened_whole(spec):
        data = open_data(spec, skip_bad_images=True, verify=False, near=False, listener=listener)
        if any(source.endless for source in data.splits.values()):
            raise DataError(f"'{spec}' is endless; name a file or a folder.")
        for source in data.splits.values():
            yield from _of_source(source)
        yield from _bad(data.bad_images)
        return
    listing = list_data(spec, Opening(listener=listener, labelled=False))
    indices = [entry.store_index for entries in listing.entries.values() for entry in entries]
    yield from _of_store(listing.store, indices)
    yield from _bad(listing.bad)


def _bad(images: Sequence[BadImage]) -> Iterator[LazyImage]:
    return (unreadable(image.path, f"{image.reason}.") for image in images)


def _of_store(store: Store, indices: Sequence[int]) -> Iterator[LazyImage]:
    return _of_source(StoredImages(store, indices, [0] * len(indices)))


def _of_source(source: Source) -> Iterator[LazyImage]:
    for index in range(len(source)):
        fetch = partial(_fetch, source, index) if isinstance(source, StoredImages) else None
        yield LazyImage(source.describe(index), partial(source.image, index), fetch)


def _fetch(source: StoredImages, index: int) -> Callable[[], Pixels]:
    content = source.encoded(index)
    if isinstance(content, Path):
        read_ahead(content)
    return partial(source.decoded, index, content)
