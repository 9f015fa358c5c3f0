"""Opening a dataset by name, path or address: one function for every kind of source."""

import itertools
import os
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path, PurePosixPath

from vitral import plugins
from vitral.advice import argument
from vitral.data.annotations.find import list_annotated, refuse_unrecognised
from vitral.data.annotations.tree import FileTree
from vitral.data.archive import TAR_SUFFIXES, ZIP_SUFFIXES, is_archive, list_archive
from vitral.data.assemble import assemble
from vitral.data.chosen import NOTES, read_choice
from vitral.data.classes import Reading, arrange, check_reading, refuse_folders_of_single_images
from vitral.data.digit_scenes import SCENES, open_digit_scenes
from vitral.data.folder import list_folder
from vitral.data.folder_tables import not_named, table_files, tables_alone, unread_beside
from vitral.data.generated import BLANK, PRESETS, open_blank, open_digits, open_generated
from vitral.data.group_values import group_values
from vitral.data.hub import list_parquet_tree, list_saved
from vitral.data.joined_lists import joined_in, list_joined
from vitral.data.labels import UNKNOWN, settle
from vitral.data.listing import Listing, Opening
from vitral.data.names import ALL, find, is_address, is_saved, natural_key, some, split_of_file
from vitral.data.part import cut
from vitral.data.prefixes import PREFIXES, PUBLISHED, Prefix, prefix_of, refuse_matlab, refuse_unnamed
from vitral.data.shards import is_shard, list_shards
from vitral.data.source import DataSet
from vitral.data.tables import JSON, SPREADSHEETS, SUFFIXES, list_tables, no_data
from vitral.data.text_table import LIST_SUFFIX, names_images
from vitral.errors import DataError, PluginError
from vitral.events import Listener, ignore
from vitral.images.decode import EXTENSIONS
from vitral.paths import is_folder, is_hidden, is_regular, look_at, nearest_path, refuse_endless, walk

BUILT_IN: dict[str, Callable[[], DataSet]] = {
    "digits": open_digits,
    **{preset: partial(open_generated, preset) for preset in PRESETS},
    BLANK: open_blank,
    **{name: partial(open_digit_scenes, name) for name in SCENES},
}
RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
MOST_SHARDS = 1_000_000
MOST_DIGITS = 18  # in a shard's number
NAMED_COLUMNS = (*SUFFIXES, *JSON)  # of tables that name their columns, or may
ANNOTATIONS = (".yaml", ".yml", ".xml")  # how files are called that say what is in photos
SHOWN = 200  # characters of a name that a message repeats


def open_data(
    spec: str | Path,
    *,
    class_names: Sequence[str] | None = None,
    classes: Reading | None = None,
    skip_bad_images: bool | None = None,
    trained_on: str | Collection[str] | None = None,
    verify: bool = True,
    hold_out: bool = True,
    checking_seconds: float | None = None,
    group: str | None = None,
    near: bool = True,
    drawn_as: Collection[str] = (),
    listener: Listener = ignore,
) -> DataSet:
    """Open a dataset by name, path or address.

    | what | how it is written |
    |---|---|
    | built-in | digits, visualatom and its presets, blank (black images, for what needs none) |
    | one folder per class, inside split folders or not | photos/, photos.zip, photos.tar, photos.tar.gz |
    | table with paths or bytes | photos.csv, photos.tsv, photos.parquet, or a folder of train.csv, test.csv, ... |
    | list of paths and classes | photos.txt, or a folder with train.txt, test.txt, ... next to the images |
    | published dataset in its authors' form | imagenet:FOLDER, cifar10:FOLDER, ... (`vitral.data.prefixes`) |
    | Hugging Face dataset | hf:OWNER/NAME, hf-stream:OWNER/NAME (add :CONFIG), or a folder of `save_to_disk` |
    | WebDataset shards | shards/train-{000..099}.tar, a folder of them, or an address such as s3://bucket/{000..099}.tar |
    | a task of VTAB-1k | vtab:FOLDER:TASK, see `vitral.data.vtab.task_data` |
    | a share of any other's training images | part:10%:photos/, part:0.1:photos/, part:1/16:photos/ (`vitral.data.part`) |
    | the classes of more than 500 images of any other | frequent:500:photos/ (`vitral.data.frequent`) |
    | photos with annotations (COCO JSON, VOC XML, YOLO text, mask images) | photos/, the task recognised |
    | the same for another task, or for classes of whole photos | boxes:photos/, semantic:, instances:, classes: |
    | any images, whose labels are not read | unlabelled:FOLDER, or unlabelled: and any other (`vitral.data.unlabelled`) |
    | chosen columns of any other, or files of shards | columns:image=photo,label=species:photos.parquet |
    | a plugin's | NAME, or NAME:TEXT |
    | Parquet anywhere | s3://bucket/photos.parquet, or a folder there |

    Args:
        spec: The name, path or address; see above.
        class_names: The classes in order, as in a classifier; None takes the data's own.
        classes: In nested folders, the folder that names the class: the innermost ("leaf"), the outermost ("top"), or all
            of them together ("path"); None detects it, and a note says what was detected.
        skip_bad_images: What becomes of images that cannot be read. None leaves them out and names them if they are at most a
            tenth of the images (or three) and not all of a class, otherwise they are an error; True leaves out any number,
            False none.
        trained_on: None to open data to train on. To evaluate, the fingerprint of the classifier's training data, or
            several classifiers': data without splits are then split as for training if they are the same as one of these;
            otherwise all of them are scored.
        verify: Whether images are decoded beforehand, to make sure that they can be read.
        checking_seconds: The time that decoding them may take; None for as long as it needs. If images are left out, it takes
            that anyway.
        hold_out: Whether some training images become a validation split where the data have a test split alone.
        group: What tells images that belong together, such as those of one patient, of which none is scored if another is
            trained on: a column of a table or a Hugging Face dataset; of images in folders "folder" (that an image lies in,
            "folder:2" for that around it), or "series" (images whose names differ in their last number alone).
        near: Whether images that look alike stay together in splits that are made here; they are looked for where all images
            are read beforehand, which are at most 50,000.
        drawn_as: Fingerprints of these data as they were split before, if they were: they are split in the same way again.
        listener: Receives the progress of checking.

    Raises:
        DataError: there is no such dataset, its classes do not match `class_names`, or it has no such `group`.
        ImageError: images cannot be read, and may not be left out.
    """
    name = str(spec)
    trained = (trained_on,) if isinstance(trained_on, str) else trained_on
    how = Opening(
        class_names,
        skip_bad_images,
        trained,
        listener,
        verify,
        check_reading(classes),
        hold_out,
        checking_seconds=checking_seconds,
        group=group,
        near=near,
        drawn_as=drawn_as,
    )
    return _open_named(name, how)


def _open_named(name: str, how: Opening) -> DataSet:
    if is_built_in(name):
        if how.group is not None:
            raise DataError(
                f"'{name}' has no columns or folders, so {argument('group', how.group)} cannot be honoured."
            )
        data = _in_order(_built_in(name), how.class_names)
        return data if how.part is None else cut(data, how.part)
    prefix = prefix_of(name)
    if prefix is not None and prefix.open is not None:
        return prefix.open(name, how, _open_named)
    listing = list_data(name, how)

    @cache
    def groups(column: str) -> dict[int, str]:
        images = [entry for listed in listing.entries.values() for entry in listed]
        tables = tables_in(name, listing.entries)
        return group_values(column, listing.title, listing.store, images, tables, columns_in(name))

    return assemble(listing, how, groups)


def _list_selectable(spec: str, how: Opening) -> Listing:
    """Return the images of data of which a prefix selects some."""
    if not is_selectable(spec):
        *others, last = (f"'{prefix.name}:'" for prefix in PREFIXES if prefix.select is not None)
        selecting = f"{', '.join(others)} or {last}"
        raise DataError(f"'{_short(spec)}' is opened as it is; name it without {selecting} before it.")
    return list_data(spec, how)


def is_selectable(spec: str) -> bool:
    """Tell whether a prefix such as "unlabelled:" may stand before a name of data: its images can be listed one by one."""
    prefix = prefix_of(spec)
    if prefix is not None and prefix.selectable:
        return is_selectable(prefix.divide(spec)[1])
    return not is_built_in(spec) and (prefix is None or prefix.images is not None)


def is_opened_whole(spec: str) -> bool:
    """Tell whether data are known only once they are opened, and `list_data` does not list their images."""
    prefix = prefix_of(spec)
    return is_built_in(spec) or (prefix is not None and prefix.open is not None)


def _built_in(name: str) -> DataSet:
    if name in BUILT_IN:
        return BUILT_IN[name]()
    plugin, _, text = name.partition(":")
    data = plugins.registered("data")[plugin](text)
    if not isinstance(data, DataSet):
        raise PluginError(f"The data source '{name}' returns a {type(data).__name__}; it must return a DataSet.")
    return data


def is_built_in(spec: str) -> bool:
    """Tell whether a name is of a dataset that comes with Vitral, or with a plugin."""
    return spec in BUILT_IN or spec.partition(":")[0] in plugins.registered("data")


def is_data_name(spec: str) -> bool:
    """Tell whether a name is spelled like a dataset, not like a folder or an image file."""
    if look_at(spec) is not None:
        return spec.lower().endswith(NAMED_COLUMNS) or (spec.lower().endswith(LIST_SUFFIX) and names_images(Path(spec)))
    named = prefix_of(spec) is not None or is_built_in(spec)
    return named or is_address(spec) or RANGE.search(spec) is not None


def parts_of_name(spec: str) -> tuple[str, str, str]:
    """Return a name of data as what stands before its path, the path, and what follows: "cifar10:", "FOLDER" and nothing.

    Of a name that holds no other path the whole is the path, as of a folder. After a prefix, ~ stands for the home folder.
    """
    prefix = prefix_of(spec)
    if prefix is None:
        return "", spec, ""
    before, inside, after = prefix.divide(spec)
    if prefix.around and inside:
        more, inside, after = parts_of_name(inside)
        before += more
    return before, os.path.expanduser(inside), after


def path_in(spec: str) -> str:
    """Return the path in a name such as "cifar10:FOLDER"; any other name is itself all there is."""
    return parts_of_name(spec)[1]


def seen_from_here(spec: str, where: str) -> str:
    """Return a name of data that holds in the folder `where`, as it must be written here; a name without a path stays."""
    before, path, after = parts_of_name(spec)
    there = Path(where, path)
    return f"{before}{there}{after}" if path and look_at(there) is not None else spec


def list_data(spec: str, how: Opening) -> Listing:
    """Return the images of a dataset as its reader finds them, none of them decoded yet, their labels settled.

    Raises:
        DataError: there is no such dataset, or some of its images have no class.
    """
    listing = _list_any(spec, how)
    plain = bool(listing.annotations) or _is_plain(listing)
    return settle(listing, how.class_names) if how.labelled and not plain else listing


def _is_plain(listing: Listing) -> bool:
    """Tell whether labels are plain names, of which nothing is to be settled: the usual case of folders."""
    names = {name for images in listing.entries.values() for entry in images for name in entry.classes}
    plain = listing.column is None and all(name.isascii() and name.lower() not in UNKNOWN for name in names)
    return plain and not any(name.endswith(".0") for name in names)


def _list_any(spec: str, how: Opening) -> Listing:
    if not spec.strip():
        raise DataError("Name the data: a folder, a file, an address, or a built-in dataset such as digits.")
    prefix = prefix_of(spec)
    if prefix is not None and prefix.select is not None:
        return prefix.select(spec, how, _list_selectable)
    notes: list[str] = []
    token = NOTES.set(notes)
    try:
        listing = _list_alone(spec, how, prefix)
    finally:
        NOTES.reset(token)
    return replace(listing, notes=(*listing.notes, *notes)) if notes else listing


def _list_alone(spec: str, how: Opening, prefix: Prefix | None) -> Listing:
    """Return the images of a dataset whose name holds no other."""
    if prefix is not None and prefix.images is not None:
        return prefix.images(spec, how)
    if RANGE.search(spec):
        return list_shards(spec, _expand(spec), how.listener, labelled=how.labelled)
    if is_address(spec):
        return _list_address(spec, how)
    path = Path(spec)
    if look_at(path) is None:
        named = (name for name in BUILT_IN if name != BLANK)
        built_in = (*named, *(f"{name}:FOLDER" for name in PUBLISHED), *plugins.registered("data"))
        hint = nearest_path(spec, built_in)
        names = "" if hint else f" ({', '.join(built_in)})"
        raise DataError(f"There is no folder '{_short(spec)}' and no dataset of that name{names}.{hint}")
    refuse_endless(path, DataError)
    return _list_folder(path, how) if is_folder(path) else _list_file(path, how)


def _list_folder(folder: Path, how: Opening) -> Listing:
    if is_saved(folder):
        return list_saved(folder, how)
    walked = walk(folder)
    refuse_unnamed(folder, (file.path for file in walked.files))
    if (annotated := list_annotated(FileTree.of_folder(folder, walked), how)) is not None:
        return annotated
    if all(file.path.lower().endswith(EXTENSIONS) for file in walked.files):
        return list_folder(folder, walked, how=how)  # nothing beside them lists or describes them
    if (joined := list_joined(folder, walked)) is not None:
        return joined
    # Tables and shards describe what is next to them, which may well be folders of images.
    if files := tables_alone(folder, walked):
        name = folder.resolve().name
        listing = list_tables(str(folder), name, files, labelled=how.labelled, marked=how.marked)
        return replace(listing, notes=(*listing.notes, *not_named(folder, walked, files, listing)))
    tars = [str(folder / file.path) for file in walked.files if file.path.endswith(".tar")]
    shards = sorted(filter(is_regular, tars), key=natural_key)
    if shards and (is_shard(shards[0]) or not how.labelled):
        return list_shards(str(folder), shards, how.listener, labelled=how.labelled)
    refuse_matlab(folder, (file.path for file in walked.files))
    archives = [file.path for file in walked.files if file.path.lower().endswith((*ZIP_SUFFIXES, *TAR_SUFFIXES))]
    if archives and not any(file.path.lower().endswith(EXTENSIONS) for file in walked.files):
        _refuse_archives(folder, archives, how)
    listing = list_folder(folder, walked, how=how)
    tables = [path for paths in table_files(folder, walked).values() for path in paths]
    sheets = [str(folder / file.path) for file in walked.files if file.path.lower().endswith(SPREADSHEETS)]
    classes = [name for images in listing.entries.values() for entry in images for name in entry.classes]
    if how.classes is None and how.labelled:
        refuse_folders_of_single_images(folder, classes, tables, sheets)
    beside = unread_beside(folder, walked, tables)
    refuse_unrecognised(folder, [file.path for file in walked.files], {*classes}, how, beside)
    notes = [f"Archives in '{folder}' are not read: {some(archives)}."] if archives else []
    if sheets:
        notes.append(f"Spreadsheets are not read ({some(sheets)}): one that gives the classes is to be saved as CSV.")
    return replace(listing, notes=(*listing.notes, *notes, *beside))


def _refuse_archives(folder: Path, archives: Sequence[str], how: Opening) -> None:
    """Refuse a folder that holds archives and no images, by a `DataError` that says why they are not its shards."""
    why = ""
    if shards := sorted(str(folder / name) for name in archives if name.lower().endswith(".tar")):
        try:
            list_shards(str(folder), shards, how.listener)
        except DataError as error:
            why = f" They are no shards: {error}"
    packed = any(name.lower().endswith(TAR_SUFFIXES[1:]) for name in archives)
    only = " (shards of WebDataset only to .tar files, such as by 'gzip -d')" if packed else ""
    raise DataError(
        f"'{folder}' holds archives and no images: {some(archives)}; unpack each into a folder of its own name{only}, or name "
        f"one of them.{why}"
    )


def tables_in(spec: str, splits: Collection[str] | None = None) -> list[str]:
    """Return the paths of the tables that local data, or some splits, are read from; none where anything else is read."""
    while (prefix := prefix_of(spec)) is not None:
        if not prefix.around:
            return []
        spec = os.path.expanduser(prefix.divide(spec)[1])
    path = Path(spec)
    if not is_folder(path):
        return [spec] if spec.lower().endswith(NAMED_COLUMNS) else []
    if is_saved(path):
        return []
    files = tables_alone(path, walk(path)).items()
    read = (table for split, tables in files if splits is None or split in (ALL, *splits) for table in tables)
    return [table for table in read if table.lower().endswith(NAMED_COLUMNS)]


def columns_in(spec: str) -> dict[str, str]:
    """Return the columns that a name of data chooses, "image", "label" or both; see `read_choice`."""
    while (prefix := prefix_of(spec)) is not None and prefix.around:
        if prefix.selectable:
            return read_choice(spec)[0]
        spec = prefix.divide(spec)[1]
    return {}


def _list_file(path: Path, how: Opening) -> Listing:
    name = path.name.lower()
    if name.endswith((*NAMED_COLUMNS, LIST_SUFFIX)):
        return list_tables(str(path), path.stem, {ALL: [str(path)]}, labelled=how.labelled, marked=how.marked)
    if name.endswith(".tar") and is_shard(str(path)):
        return list_shards(str(path), [str(path)], how.listener, labelled=how.labelled)
    if is_archive(path):
        return list_archive(path, how, partial(_refuse_packed, path, how))
    if name.endswith(ANNOTATIONS):
        raise DataError(f"'{path}' is a file; annotations are read with their photos: name the folder that holds both.")
    raise no_data(path)


def _refuse_packed(path: Path, how: Opening, names: Iterable[str]) -> None:
    """Refuse an archive whose folders are not its classes, or not all there is to it, by a `DataError` that says what to do."""
    names = list(names)
    refuse_unnamed(path, names)
    refuse_matlab(path, names)
    if joined_in(names):
        raise DataError(f"'{path}' has lists of its labels and splits, which are read in a folder; unpack it.")
    images = [name for name in names if name.lower().endswith(EXTENSIONS)]
    alone = len({name.rpartition("/")[0] for name in images}) <= 1
    if alone and any(name.endswith(".cls") for name in names):
        list_shards(str(path), [str(path)], how.listener)  # which says why it is none
    if alone and (tables := [name for name in names if name.lower().endswith((*SUFFIXES, JSON[0]))]):
        raise DataError(f"'{path}' has a table, {some(tables)}, which is read in a folder; unpack it.")
    seen = [name for name in map(PurePosixPath, names) if not any(map(is_hidden, name.parts))]
    parts = [name.parts for name in seen if name.name.lower().endswith(EXTENSIONS)]
    if len(parts) < len(seen):
        arranged = arrange(parts, reading=how.classes, wanted=how.class_names)
        classes = {name for listed in arranged.images.values() for _, name in listed}
        refuse_unrecognised(path, list(map(str, seen)), classes, how)


def _list_address(spec: str, how: Opening) -> Listing:
    lower = spec.lower()
    if lower.endswith(".tar"):
        return list_shards(spec, [spec], how.listener, labelled=how.labelled)
    name = PurePosixPath(spec.split("://", 1)[1]).stem
    if lower.endswith(".parquet"):
        files = {split_of_file(spec.rpartition("/")[2]): [spec]}
        return list_tables(spec, name, files, labelled=how.labelled)
    shards, _ = find(spec, "**/*.tar")
    if shards:
        return list_shards(spec, shards, how.listener, labelled=how.labelled)
    return list_parquet_tree(spec, spec.rstrip("/"), name, labelled=how.labelled)


def _expand(spec: str) -> list[str]:
    """Return the shards of "train-{000..099}.tar", their numbers padded as written."""
    count = 1
    for match in RANGE.finditer(spec):
        first, last = match[1], match[2]
        wide = max(len(first), len(last)) > MOST_DIGITS
        count *= 0 if wide or int(last) < int(first) else int(last) - int(first) + 1
        if not 0 < count <= MOST_SHARDS:
            raise DataError(
                f"'{_short(match[0])}' in '{_short(spec)}' is not a range of shards, or has too many (over {MOST_SHARDS:,}); "
                "write the first number, two dots and the last."
            )
    parts = RANGE.split(spec)  # text, first, last, text, first, last, ..., text
    ranges = zip(parts[1::3], parts[2::3], strict=True)
    numbers = ([str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)] for first, last in ranges)
    texts = parts[0::3]
    return [
        "".join([texts[0], *map(str.__add__, combination, texts[1:])]) for combination in itertools.product(*numbers)
    ]


def _short(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def _in_order(data: DataSet, class_names: Sequence[str] | None) -> DataSet:
    if class_names is not None and tuple(class_names) != data.class_names:
        raise DataError(
            f"The classifier's classes ({', '.join(list(class_names)[:5])}, …) are not those of '{data.name}' "
            f"({', '.join(data.class_names[:5])}, …)."
        )
    return data
