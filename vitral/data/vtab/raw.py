"""VTAB's images in the files that a dataset's authors give out: ROOT/NAME, with TFDS's name of the dataset.

The package vitral-vtab reads them. It is imported when such files are there.
"""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from vitral.data.listing import Listing, Opening
from vitral.data.vtab.tasks import TASKS, VtabTask
from vitral.errors import DataError

ORDER = "order by TFDS's rule, not compared with TFDS itself"
PACKAGE = "vitral_vtab"  # which has a RawReader, `list_files`
CALTECH101 = "caltech101"
# Lists the images of a task in the folder of its dataset, at most so many of the test images, evenly spaced; a DataError says
# which files are missing, damaged or do not match.
RawReader = Callable[[Path, VtabTask, int | None], Listing]


def list_raw(root: Path, task: VtabTask, how: Opening, most_test: int | None) -> Listing | None:
    """Return the images of a task in the authors' files; None where there are none that can be put in order."""
    folder = raw_folder(root, task)
    if folder is None:
        return None
    read = _reader()
    if read is None:
        raise DataError(why_not(root, task))
    return read(folder, task, most_test)


def raw_folder(root: Path, task: VtabTask) -> Path | None:
    """Return the folder of a task's raw files; None where there are none that can be put in order."""
    folder = _folder(root, task)
    return folder if folder.name != CALTECH101 and _is_raw(folder, task) else None


def why_not(root: Path, task: VtabTask) -> str:
    """Return why the raw files of a task cannot be read; empty where they can be, or there are none."""
    folder = _folder(root, task)
    if not _is_raw(folder, task):
        return ""
    if folder.name == CALTECH101:
        return (
            f"'{folder}' cannot be read as it is: which 30 images a class TFDS trains on depends on the order in which a file "
            f"system lists them; prepare it with TFDS (version {task.version})."
        )
    if _reader() is not None:
        return ""
    names = dict.fromkeys(found.name for each in TASKS if (found := raw_folder(root, each)) is not None)
    return (
        f"'{root}' holds files of datasets' authors ({', '.join(names)}), which the package vitral-vtab of Vitral's version "
        "reads: pip install vitral-vtab, or, in Vitral's repository, pip install ./packages/vitral-vtab."
    )


def _reader() -> RawReader | None:
    try:
        reader: RawReader = import_module(PACKAGE).list_files
    except ImportError:
        return None
    return reader


def _folder(root: Path, task: VtabTask) -> Path:
    return root / task.dataset.partition("/")[0]


def _is_raw(folder: Path, task: VtabTask) -> bool:
    return any(any(folder.glob(mark)) for mark in task.marks)
