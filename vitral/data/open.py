"""From what a user calls a data set to the data set: one spelling for every kind of source."""

import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import fsspec

from vitral.data.archive import is_archive, list_archive
from vitral.data.assemble import Listing, Opening, assemble
from vitral.data.digits import open_digits
from vitral.data.folder import list_folder
from vitral.data.generated import PRESETS, open_generated
from vitral.data.hub import HUB, STREAM, is_saved, list_hub, list_parquet_tree, list_saved, list_stream
from vitral.data.shards import is_shard, list_shards, shard_files
from vitral.data.source import DataSet
from vitral.data.table import SUFFIXES, list_tables, split_of_file, table_files
from vitral.errors import DataError, did_you_mean
from vitral.events import Listener, ignore

DIGITS = "digits"
RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
MOST_SHARDS = 1_000_000


def open_data(
    spec: str | Path,
    *,
    class_names: Sequence[str] | None = None,
    skip_bad_images: bool = False,
    trained_on: str | None = None,
    verify: bool = True,
    listener: Listener = ignore,
) -> DataSet:
    """Open a data set by name, path or address.

    | what | how it is spelled |
    |---|---|
    | built-in | digits, visualatom and its presets |
    | one folder a class, below splits or not | photos/, photos.zip, photos.tar, photos.tar.gz |
    | table with paths or bytes | photos.csv, photos.tsv, photos.parquet, or a folder of train.csv, test.csv, ... |
    | Hugging Face data set | hf:OWNER/NAME, hf-stream:OWNER/NAME (add :CONFIG), or a folder of `save_to_disk` |
    | WebDataset shards | shards/train-{000..099}.tar, a folder of them, or an address such as s3://bucket/{000..099}.tar |
    | Parquet anywhere | s3://bucket/photos.parquet, or a folder there |

    Args:
        spec: see above.
        class_names: the order of the classes, as a classifier has it; None takes the data's own.
        skip_bad_images: leave out pictures that cannot be read, and list them, in place of an error.
        trained_on: None to open data to train on. To evaluate, the fingerprint of what the classifier was trained on: data
            without splits are then shared out as for training if they are the same, and else scored whole.
        verify: whether pictures are decoded beforehand, to know that they can be read.
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
    return assemble(list_data(name, listener), Opening(class_names, skip_bad_images, trained_on, listener, verify))


def list_data(spec: str, listener: Listener = ignore) -> Listing:
    """Return the pictures of a data set as its reader finds them, not one of them decoded yet.

    Raises:
        DataError: there is no such data set.
    """
    if not spec.strip():
        raise DataError("The data need a name: a folder, a file, an address, or a built-in set such as digits.")
    if spec.startswith(HUB):
        return list_hub(spec)
    if spec.startswith(STREAM):
        return list_stream(spec)
    if RANGE.search(spec):
        return list_shards(spec, _expand(spec), listener)
    if "://" in spec:
        return _list_address(spec, listener)
    path = Path(spec)
    if not path.exists():
        built_in = (DIGITS, *PRESETS)
        hint = did_you_mean(spec, built_in)
        raise DataError(f"There is no folder '{spec}' and no data set of that name ({', '.join(built_in)}).{hint}")
    return _list_folder(path, listener) if path.is_dir() else _list_file(path, listener)


def _list_folder(folder: Path, listener: Listener) -> Listing:
    if is_saved(folder):
        return list_saved(folder)
    # Tables and shards describe what lies beside them, which may well be folders of pictures.
    if files := _tables_alone(folder):
        return list_tables(str(folder), folder.resolve().name, files)
    shards = shard_files(folder)
    if shards and is_shard(shards[0]):
        return list_shards(str(folder), shards, listener)
    return list_folder(folder)


def _tables_alone(folder: Path) -> dict[str, list[str]]:
    """Return a folder's tables by split; none where there are class folders beside tables that no split is named for."""
    files = table_files(folder)
    if set(files) == {"all"} and any(path.is_dir() and not path.name.startswith(".") for path in folder.iterdir()):
        return {}
    return {split: paths for split, paths in files.items() if split != "all"} or files


def _list_file(path: Path, listener: Listener) -> Listing:
    name = path.name.lower()
    if name.endswith(SUFFIXES):
        return list_tables(str(path), path.stem, {"all": [str(path)]})
    if name.endswith(".tar") and is_shard(str(path)):
        return list_shards(str(path), [str(path)], listener)
    if is_archive(path):
        return list_archive(path)
    raise DataError(
        f"'{path}' is a file; give the folder that holds one sub-folder a class, or a .zip, .tar, .csv "
        "or .parquet file."
    )


def _list_address(spec: str, listener: Listener) -> Listing:
    lower = spec.lower()
    if lower.endswith(".tar"):
        return list_shards(spec, [spec], listener)
    name = PurePosixPath(spec.split("://", 1)[1]).stem
    if lower.endswith(".parquet"):
        return list_tables(spec, name, {split_of_file(spec.rpartition("/")[2]): [spec]})
    try:
        filesystem, path = fsspec.url_to_fs(spec)
        shards = sorted(filesystem.glob(f"{path.rstrip('/')}/**/*.tar"))
    except Exception as error:  # each file system raises its own kinds
        raise DataError(f"'{spec}' cannot be reached ({' '.join(str(error).split())[:200]}).") from error
    if shards:
        return list_shards(spec, [filesystem.unstrip_protocol(shard) for shard in shards], listener)
    return list_parquet_tree(spec, spec.rstrip("/"), name)


def _expand(spec: str) -> list[str]:
    """Return the shards of "train-{000..099}.tar", numbers as wide as they are written."""
    match = RANGE.search(spec)
    if match is None:
        return [spec]
    first, last = int(match[1]), int(match[2])
    if last < first or last - first >= MOST_SHARDS:
        raise DataError(
            f"'{match[0]}' in '{spec}' is no range of shards; write the first number, two dots and the last."
        )
    numbers = (str(number).zfill(len(match[1])) for number in range(first, last + 1))
    return [shard for number in numbers for shard in _expand(spec[: match.start()] + number + spec[match.end() :])]


def _in_order(data: DataSet, class_names: Sequence[str] | None) -> DataSet:
    if class_names is not None and tuple(class_names) != data.class_names:
        raise DataError(
            f"The classifier's classes ({', '.join(list(class_names)[:5])}, …) are not those of '{data.name}' "
            f"({', '.join(data.class_names[:5])}, …)."
        )
    return data
