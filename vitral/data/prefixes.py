"""The prefixes that a name of data may begin with, a row each: a new one is a file that lists or opens it, and a row here.

"cifar10:FOLDER" and so on name the published datasets.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from vitral.data.annotations.find import FORCED, WHOLE, list_as
from vitral.data.chosen import list_chosen
from vitral.data.frequent import list_frequent
from vitral.data.hub import list_hub, list_stream
from vitral.data.listing import Listing, Opening
from vitral.data.part import open_part
from vitral.data.published.cifar import CIFAR10, CIFAR100, CIFAR100_COARSE, list_cifar
from vitral.data.published.flowers import list_flowers
from vitral.data.published.imagenet import list_imagenet, list_imagenet_real, list_imagenet_v2
from vitral.data.published.pets import list_pets
from vitral.data.published.tiny_imagenet import list_tiny_imagenet
from vitral.data.source import DataSet
from vitral.data.unlabelled import list_without_labels
from vitral.errors import DataError
from vitral.paths import from_home, look_at

PUBLISHED: dict[str, Callable[[Path, Opening], Listing]] = {
    "cifar10": lambda path, how: list_cifar(CIFAR10, path),
    "cifar100": lambda path, how: list_cifar(CIFAR100, path),
    "cifar100-coarse": lambda path, how: list_cifar(CIFAR100_COARSE, path),
    "flowers102": lambda path, how: list_flowers(path),
    "imagenet": list_imagenet,
    "imagenet-real": list_imagenet_real,
    "imagenet-v2": list_imagenet_v2,
    "pets": lambda path, how: list_pets(path),
    "tiny-imagenet": lambda path, how: list_tiny_imagenet(path),
}

# Files by which a published dataset is recognised where its name is missing, because its folders are not its classes.
SIGNS = {
    "data_batch_1.bin": "cifar10",
    "data_batch_1": "cifar10",
    "fine_label_names.txt": "cifar100",
    "imagelabels.mat": "flowers102",
    "annotations/trainval.txt": "pets",
    "images/val_0.JPEG": "tiny-imagenet",
    "images/test_0.JPEG": "tiny-imagenet",
}
# Files of splits and classes in MATLAB's format, by which a published dataset is recognised that is not read.
MATLAB = {"train_list.mat": "Stanford Dogs", "cars_train_annos.mat": "Stanford Cars", "cars_annos.mat": "Stanford Cars"}
Parts = tuple[str, str, str]  # before the path or the name inside, that path or name, and after it


def refuse_unnamed(path: Path, names: Iterable[str]) -> None:
    """Refuse a folder or an archive that is a published dataset in its authors' form, but was not named as one.

    Raises:
        DataError: it is, which says how to name it.
    """
    for path_inside in names:
        folder, _, name = path_inside.rpartition("/")
        dataset = SIGNS.get(name) or SIGNS.get(f"{folder.rpartition('/')[2]}/{name}")
        if dataset:
            raise DataError(f"'{path}' has '{path_inside}' of a published dataset; name it so: {dataset}:{path}")


def list_published(spec: str, how: Opening) -> Listing:
    """Return the images of "NAME:PATH", or raise DataError if there is no path, or what is there is not that dataset."""
    name, _, path = spec.partition(":")
    if not path:
        raise DataError(f"Say where {name} is: {name}:FOLDER, with what its authors give out, packed or not.")
    return PUBLISHED[name](from_home(path), how)


def refuse_matlab(path: Path, names: Iterable[str]) -> None:
    """Refuse a folder or an archive of a published dataset whose split is in MATLAB's format, by a DataError."""
    for inside in names:
        if dataset := MATLAB.get(inside.rpartition("/")[2]):
            raise DataError(
                f"'{path}' is {dataset}, whose split is in MATLAB's format ('{inside}'), which is not read; write it into "
                "train.txt and test.txt beside the images, a line 'image class' for each (scipy.io.loadmat gives both). Where "
                "folders name the classes, the folder of the images alone is split anew."
            )


def _rest(spec: str) -> Parts:
    """Divide a name of which all behind the prefix is a path."""
    prefix, colon, path = spec.partition(":")
    return f"{prefix}{colon}", path, ""


def _second_rest(spec: str) -> Parts:
    """Divide a name in which a number or another word stands between the prefix and another name: "part:10%:", "photos/"."""
    prefix, colon, rest = spec.partition(":")
    before, path, after = _rest(rest)
    return f"{prefix}{colon}{before}", path, after


def _whole(spec: str) -> Parts:
    """Divide a name that holds no path."""
    return "", spec, ""


def _open_vtab(spec: str, how: Opening, _: Callable[[str, Opening], DataSet]) -> DataSet:
    from vitral.data.vtab.task_data import open_task, read_spec  # imports all of its readers

    return open_task(read_spec(spec), how)


def _divide_vtab(spec: str) -> Parts:
    from vitral.data.vtab.task_data import divide_vtab

    return divide_vtab(spec)


@dataclass(frozen=True, kw_only=True)
class Prefix:
    """A prefix of names of data.

    Attributes:
        name: The prefix without its colon, such as "part".
        images: Lists the images of a name, none of them decoded; other prefixes may select some of them.
        select: Lists some images of other data, which its last argument lists.
        open: Opens a name where listed images are not all there is to it; its last argument opens other data.
        divide: Divides a name into what stands before the path or the name inside, that path or name, and what follows.
        selectable: Whether what it selects are all images of the other data, so that other prefixes may select some of them.
        around: Whether the prefix stands before another name of data.
        known_alone: Whether the prefix without a colon is recognised, so that a message can say what is missing.
    """

    name: str
    images: Callable[[str, Opening], Listing] | None = None
    select: Callable[[str, Opening, Callable[[str, Opening], Listing]], Listing] | None = None
    open: Callable[[str, Opening, Callable[[str, Opening], DataSet]], DataSet] | None = None
    divide: Callable[[str], Parts] = _rest
    selectable: bool = False
    around: bool = False
    known_alone: bool = False

    def begins(self, spec: str) -> bool:
        """Tell whether a name of data begins with the prefix."""
        return spec.startswith(f"{self.name}:") or (self.known_alone and spec == self.name)


PREFIXES = (
    Prefix(name="part", open=open_part, divide=_second_rest, around=True),
    Prefix(name="unlabelled", select=list_without_labels, around=True),
    Prefix(name="frequent", select=list_frequent, divide=_second_rest, around=True),
    *(Prefix(name=name, select=list_as, selectable=True, around=True) for name in (*FORCED, WHOLE)),
    Prefix(name="columns", select=list_chosen, divide=_second_rest, selectable=True, around=True),
    Prefix(name="vtab", open=_open_vtab, divide=_divide_vtab),
    Prefix(name="hf", images=list_hub, divide=_whole),
    Prefix(name="hf-stream", images=list_stream, divide=_whole),
    *(Prefix(name=name, images=list_published, known_alone=True) for name in PUBLISHED),
)


def prefix_of(spec: str) -> Prefix | None:
    """Return the prefix that a name of data begins with; None for any other name, and for what is there by the whole name."""
    found = next((prefix for prefix in PREFIXES if prefix.begins(spec)), None)
    return None if found is None or look_at(spec) is not None else found
