"""Files and folders of images, regardless of labels; without torch, which those that only predict may lack."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from vitral.errors import ImageError
from vitral.images.decode import EXTENSIONS, Pixels, read_image
from vitral.paths import files_below, is_folder, is_regular

CHUNK = 1 << 20  # bytes
Arrange = Callable[[Iterable[str]], Iterable[str]]


@dataclass(frozen=True)
class LazyImage:
    """An image that is read when it is needed.

    Attributes:
        name: The image's name for people: its path, or archive and member.
        read: Returns its RGB pixels, or raises ImageError.
        fetch: Reads the encoded image and returns a function that decodes it, or raises ImageError; None where nothing is
            encoded.
    """

    name: str
    read: Callable[[], Pixels]
    fetch: Callable[[], Callable[[], Pixels]] | None = None


def files_in(folder: Path, arrange: Arrange) -> Iterator[LazyImage]:
    """Give the image files below a folder, by their names' endings; a broken link is reported when it is read.

    Args:
        folder: The folder.
        arrange: Puts paths in order, such as `sorted`; or `iter`, which has the names of one folder at a time in memory.
    """
    names = arrange(name for name in files_below(folder) if name.lower().endswith(EXTENSIONS))
    return (of_file(folder / name) for name in names)


def plain_images(spec: str) -> list[LazyImage] | None:
    """Return the images that a name stands for, those of a folder in order of path; None where it is no file or folder of them.

    What else a name may stand for, a dataset or an archive, `vitral.data.image_stream` knows.
    """
    path = Path(spec)
    if is_folder(path):
        return list(files_in(path, sorted)) or None
    return [of_file(path, spec)] if is_regular(path) and spec.lower().endswith(EXTENSIONS) else None


def require(images: Iterator[LazyImage], path: Path) -> Iterator[LazyImage]:
    """Give images, or raise ImageError that names the path if there is none."""
    first = next(images, None)
    if first is None:
        raise ImageError(f"'{path}' holds no images; their names end in {', '.join(EXTENSIONS)}.")
    yield first
    yield from images


def of_file(path: Path, name: str = "") -> LazyImage:
    """Return an image file, named by its path if not otherwise."""
    return LazyImage(name or str(path), partial(read_image, path), partial(_fetch_file, path))


def _fetch_file(path: Path) -> Callable[[], Pixels]:
    read_ahead(path)
    return partial(read_image, path)


def read_ahead(path: Path) -> None:
    """Let the system read a file, so that decoding finds it in memory; an error in reading it is raised there."""
    if is_regular(path):
        with contextlib.suppress(OSError), open(path, "rb") as file:
            while file.read(CHUNK):
                pass
