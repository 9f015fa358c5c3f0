"""Files and folders of images, regardless of labels; without torch, which those that only predict may lack."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from vitral.advice import counted
from vitral.data.names import NAMED
from vitral.errors import ImageError
from vitral.events import Listener, Message, skipping
from vitral.images.decode import EXTENSIONS, Pixels, ReadsPixels, Shrink, read_image
from vitral.paths import files_below, is_folder, is_regular

CHUNK = 1 << 20  # bytes
Arrange = Callable[[Iterable[str]], Iterable[str]]
Prepared = TypeVar("Prepared")


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
    read: ReadsPixels
    fetch: Callable[[], Callable[[], Pixels]] | None = None


def unreadable(name: str, sentence: str) -> LazyImage:
    """Return an image that is not read: whoever tries gets an ImageError with a sentence."""
    return LazyImage(name, partial(_refuse, sentence))


def _refuse(sentence: str, *, shrink: Shrink | None = None) -> Pixels:
    raise ImageError(sentence)


def prepare(
    images: Iterable[LazyImage],
    preprocessing: Callable[[Pixels], Prepared],
    *,
    skip_bad_images: bool,
    listener: Listener,
) -> Iterator[tuple[str, Prepared]]:
    """Give the name of each image and the prepared image, reading one at a time; bad ones may be left out with a warning.

    Raises:
        ImageError: An image cannot be read; the message names it.
    """
    with skipping(listener) as skip:
        for image in images:
            try:
                yield image.name, preprocessing(image.read())
            except ImageError as error:
                if not skip_bad_images:
                    raise
                skip(error)


def files_in(folder: Path, arrange: Arrange, listener: Listener) -> Iterator[LazyImage]:
    """Give the image files below a folder, by their names' endings; a broken link is reported when it is read.

    They come in the order of `sorted`, or of `iter`, which has the names of one folder at a time in memory.
    """
    first: list[str] = []
    images = others = 0

    def names() -> Iterator[str]:
        nonlocal images, others
        for name in files_below(folder):
            if name.lower().endswith(EXTENSIONS):
                images += 1
                yield name
            elif not describes(name):
                others += 1
                first.extend([name] if len(first) < NAMED else [])

    for name in arrange(names()):
        yield of_file(folder / name)
    if images and others:
        listener(Message(note_others(folder, first, others)))


def describes(name: str) -> bool:
    """Tell whether a file is named like a description of a dataset, which nobody takes for an image."""
    return name.rpartition("/")[2].lower().partition(".")[0] in ("readme", "licence", "license")


def note_others(folder: Path, first: Sequence[str], count: int) -> str:
    """Return a note on so many files of a folder that are not named like images, of which it names the first."""
    verb, more = "is" if count == 1 else "are", f", … ({count:,} in all)" if count > len(first) else ""
    return (
        f"{counted(count, 'file')} in '{folder}' {verb} not named like images, and left out: {', '.join(first)}{more}."
    )


def plain_images(spec: str, listener: Listener) -> list[LazyImage] | None:
    """Return the images that a name stands for, those of a folder in order of path; None where it is no file or folder of them.

    What else a name may stand for, a dataset or an archive, `vitral.data.image_stream` knows.
    """
    path = Path(spec)
    if is_folder(path):
        return list(files_in(path, sorted, listener)) or None
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
