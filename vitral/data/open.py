"""From what a user calls a data set to the data set."""

from collections.abc import Sequence
from pathlib import Path

from vitral.data.digits import open_digits
from vitral.data.folder import open_folder
from vitral.data.generated import PRESETS, open_generated
from vitral.data.source import DataSet
from vitral.errors import DataError, did_you_mean
from vitral.events import Listener, ignore

DIGITS = "digits"


def open_data(
    spec: str | Path,
    *,
    class_names: Sequence[str] | None = None,
    skip_bad_images: bool = False,
    trained_on: str | None = None,
    listener: Listener = ignore,
) -> DataSet:
    """Open a data set by name or folder.

    Args:
        spec: "digits", "visualatom" or one of its presets, or a folder with one sub-folder a class.
        class_names: the order of the classes, as a classifier has it; None takes the data's own.
        skip_bad_images: leave out pictures that cannot be read, and list them, in place of an error.
        trained_on: None to open data to train on. To evaluate, the fingerprint of what the classifier was trained on: a
            folder without split folders is then shared out as for training if it is the same, and else scored whole.
        listener: hears of the checking's progress.

    Raises:
        DataError: there is no such data set, or its classes do not match `class_names`.
        ImageError: pictures cannot be read.
    """
    name = str(spec)
    if name == DIGITS:
        return _in_order(open_digits(), class_names)
    if name in PRESETS:
        return _in_order(open_generated(name), class_names)
    if not Path(name).exists():
        built_in = (DIGITS, *PRESETS)
        hint = did_you_mean(name, built_in)
        raise DataError(f"There is no folder '{name}' and no data set of that name ({', '.join(built_in)}).{hint}")
    return open_folder(
        Path(name),
        class_names=class_names,
        skip_bad_images=skip_bad_images,
        trained_on=trained_on,
        listener=listener,
    )


def _in_order(data: DataSet, class_names: Sequence[str] | None) -> DataSet:
    if class_names is not None and tuple(class_names) != data.class_names:
        raise DataError(
            f"The classifier's classes ({', '.join(list(class_names)[:5])}, …) are not those of '{data.name}' "
            f"({', '.join(data.class_names[:5])}, …)."
        )
    return data
