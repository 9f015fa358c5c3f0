"""Annotations of the photos of a folder, recognised by their files: a new format is a reader, and a row of `READERS`.

Photos in folders that are called like the classes of their annotations stay photos of one class each, as do photos in folders
of several classes with masks beside them: masks say nothing of the class there. "boxes:", "semantic:" or "instances:" before
the data's name reads the annotations, "classes:" leaves them unread.
"""

import os
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from pathlib import Path, PurePosixPath

from vitral.advice import counted
from vitral.data.annotations.ade20k import read_ade20k, read_scene_parsing
from vitral.data.annotations.annotation import Marks
from vitral.data.annotations.box_table import read_box_tables
from vitral.data.annotations.cityscapes import read_cityscapes
from vitral.data.annotations.coco import read_coco
from vitral.data.annotations.coco_panoptic import read_panoptic
from vitral.data.annotations.cvat import read_cvat
from vitral.data.annotations.hub_folder import read_hub_folder
from vitral.data.annotations.label_studio import read_label_studio
from vitral.data.annotations.labelme import read_labelme
from vitral.data.annotations.marked import MarkedPhotos, said
from vitral.data.annotations.mask_images import read_masks
from vitral.data.annotations.mask_names import LISTS_OF_MASKS
from vitral.data.annotations.mask_pairs import MaskPairs, pair_masks, pair_objects
from vitral.data.annotations.object_maps import read_object_maps
from vitral.data.annotations.other_task import for_task
from vitral.data.annotations.sizes import fitted
from vitral.data.annotations.tree import FileTree, Photos, speaks_of_masks
from vitral.data.annotations.voc import read_voc
from vitral.data.annotations.yolo import read_yolo
from vitral.data.chosen import NOTES, note
from vitral.data.classes import FEWEST_OF_FOLDERS, arrange
from vitral.data.folder import note_ours
from vitral.data.image_files import describes
from vitral.data.listing import Listing, Opening
from vitral.data.masks import OF_NNUNET, speak_of_masks, twins
from vitral.data.names import ALL, are_parts, like_splits, natural_key, some, split_in, split_within
from vitral.data.stored import Entry
from vitral.errors import DataError
from vitral.tasks.instances import INSTANCES
from vitral.tasks.panoptic import PANOPTIC
from vitral.tasks.registry import task_named
from vitral.tasks.semantic import SEMANTIC

Reader = Callable[[FileTree], MarkedPhotos | None]
READERS: tuple[Reader, ...] = (
    *(read_coco, read_panoptic, read_voc, read_cvat, read_label_studio),
    *(read_labelme, read_cityscapes, read_scene_parsing, read_ade20k, read_yolo, read_box_tables, read_hub_folder),
)
PHOTOS = (".jpg", ".jpeg")  # endings of files in which no annotations are written
TABLES = ".parquet"
WHOLE = "classes"  # the prefix that leaves annotations unread
FORCED = ("boxes", "semantic", "instances", "panoptic")  # the prefixes that choose a task
READ = (
    "those of COCO, Pascal VOC, YOLO, Label Studio, CVAT, Hugging Face and LabelMe are, tables of boxes and mask images: "
    "export them as one of these"
)
OF_NONE = "is of none of its images"
# Endings of files that may say what is in photos, and of those that may where they are called like photos, or are over FEW.
DESCRIPTIONS = (".json", ".jsonl", ".ndjson", ".xml")
TEXTS = (".txt", ".csv")
FEW = 2


def list_annotated(tree: FileTree, how: Opening) -> Listing | None:
    """Return the annotated photos of a folder or an archive; None where there are none, or folders name the classes.

    Raises:
        DataError: annotations cannot be read, or there are none and a task needs them.
    """
    if how.marked == WHOLE or not how.labelled:
        return None
    marked = _read(tree, how)
    if tree.unread:
        note(
            f"{tree.unread:,} JSON files in '{tree.title}', the smallest, were not read: they are too many and too large."
        )
    if marked is None:
        if how.marked is not None and not tree.ending(TABLES):  # which may have objects in a column
            raise DataError(
                f"'{tree.title}' has no annotations that are recognised, as '{how.marked}:' needs them; {READ}."
            )
        return None
    marked = fitted(tree, marked)
    if how.marked is not None:
        marked = for_task(marked, task_named(how.marked), str(tree.title))
    return listing_of(tree, marked)


def refuse_unrecognised(
    title: Path, paths: Collection[str], classes: Collection[str], how: Opening, notes: Iterable[str] = ()
) -> None:
    """Refuse photos without folders of classes beside files that may be their annotations, which no reader recognised.

    Args:
        title: The folder or archive.
        paths: The paths of its files.
        classes: The classes that its folders name.
        how: How it is opened.
        notes: Lines on what else is not read.

    Raises:
        DataError: there are such files, or annotations of none of the photos.
    """
    fitting = how.class_names is not None and not {*classes}.isdisjoint(how.class_names)
    if how.marked == WHOLE or not how.labelled or len(classes) > 1 or fitting or not Photos(paths).paths:
        return
    why = [*(NOTES.get() or ())]  # of readers, which know what they found
    of_none, files = any(OF_NONE in line for line in why), _may_be_annotations(paths)
    if of_none:
        why.append("Name the photos as it calls them.")
    elif files:
        why.append(f"'{title}' has no annotations that are recognised ({some(files)}); {READ}.")
    else:
        return
    only = f"only one class ('{next(iter(classes))}')" if classes else "no classes"
    folders = (
        f"by its folders '{title}' has {only}: put the photos of each class into a folder of its own, at least two."
    )
    raise DataError(" ".join([*why, f"Without annotations, {folders}", *notes]))


def _may_be_annotations(paths: Collection[str]) -> list[str]:
    """Return the files that may say what is in photos; of texts those that are called like photos, or more than a few."""
    stems = {path: PurePosixPath(path).stem for path in paths if not describes(path)}
    photos = {PurePosixPath(path).stem.casefold() for path in Photos(paths).paths}
    texts = [path for path in stems if path.lower().endswith(TEXTS)]
    alike = [path for path in texts if stems[path].casefold() in photos]
    others = [path for path in texts if split_in(stems[path])[0] is None]  # a list of a split names photos, or classes
    found = alike or (others if len(others) > FEW else [])
    return found + [path for path in stems if path.lower().endswith(DESCRIPTIONS)]


def _read(tree: FileTree, how: Opening) -> MarkedPhotos | None:
    if how.marked == SEMANTIC.name:
        pairs = pair_masks(tree, by_name=_described(tree), any_name=False)  # of others annotations may say more
        if pairs is not None:
            return read_masks(tree, pairs, how.class_names)
    if how.marked == INSTANCES.name and (objects := pair_objects(tree, by_name=_described(tree))):
        return read_object_maps(tree, objects)
    readers = (read_panoptic, *READERS) if how.marked == PANOPTIC.name else READERS
    if all(file.path.lower().endswith(PHOTOS) for file in tree.files):
        readers = ()  # each would go over all of the paths
    found = next((marked for read in readers if (marked := read(tree)) is not None and _of_photos(tree, marked)), None)
    if found is None:
        return _read_masks(tree, how)
    if how.marked is None and _named_alike(found):
        note(
            f"{found.form} in '{tree.title}' is not read: folders name the classes. To learn from it, put "
            f"'{found.task.name}:' before the data's name."
        )
        return None
    return found


def _of_photos(tree: FileTree, marked: MarkedPhotos) -> bool:
    """Tell whether annotations are of photos that are there, and note it where they are of none."""
    if marked.annotations or marked.bad:
        return True
    note(" ".join([f"{marked.form} in '{tree.title}' {OF_NONE}.", *said(marked.traps)]))
    return False


def _read_masks(tree: FileTree, how: Opening) -> MarkedPhotos | None:
    described = _described(tree)
    if how.marked is None and not described and not _may_have_masks(tree.photos):
        return None
    pairs = pair_masks(tree, by_name=described)
    if pairs is None and how.marked is not None:
        pairs = pair_masks(tree, by_name=True)
    if pairs is None or (how.marked is None and not pairs.objects and _in_classes(tree.photos, pairs)):
        return None
    return read_masks(tree, pairs, how.class_names)


def _described(tree: FileTree) -> bool:
    """Tell whether a list of classes says that there are masks."""
    return any(file.path.rpartition("/")[2].lower() in LISTS_OF_MASKS for file in tree.files)


def _may_have_masks(photos: Photos) -> bool:
    """Tell by names and formats whether images may be masks of others."""
    kinds = {path.rpartition(".")[2].lower() for path in photos.paths}
    parts = [tuple(path.split("/")) for path in photos.paths]
    return len(kinds) > 1 or speak_of_masks({part for path in parts for part in path}) or any(twins(parts))


def _in_classes(photos: Photos, pairs: MaskPairs) -> bool:
    """Tell whether the photos that have masks, and others that are not of a test, are in folders of several classes."""
    masks = {mask for each in pairs.masks.values() for mask in each} | pairs.others
    images = [
        path
        for path in photos.paths
        if (path in pairs.masks and PurePosixPath(path).parent.name not in OF_NNUNET)
        or (path not in masks and not any(map(_is_of_none, path.split("/")[:-1])))
    ]
    arranged = arrange([PurePosixPath(path).parts for path in images])
    names = {name for listed in arranged.images.values() for _, name in listed}
    own = len(names) * FEWEST_OF_FOLDERS > len(images)  # a folder of its own for nearly every photo
    return len(names) > 1 and not (own or are_parts(names) or all(map(split_within, names)) or like_splits([*names]))


def _is_of_none(folder: str) -> bool:
    """Tell whether a folder is called so that images in it may have no class: of a test, of masks, or nnU-Net's."""
    return split_within(folder) == "test" or speaks_of_masks(folder) or folder in OF_NNUNET


def _named_alike(marked: MarkedPhotos) -> bool:
    """Tell whether photos are in folders of several classes that are called like those of their annotations."""
    arranged = arrange([PurePosixPath(path).parts for path in marked.annotations])
    names = {name.casefold() for listed in arranged.images.values() for _, name in listed}
    return len(names) > 1 and 2 * len(names & {name.casefold() for name in marked.class_names}) > len(names)


def listing_of(tree: FileTree, marked: MarkedPhotos) -> Listing:
    """Return annotated photos as data, with what was recognised and left out in a line each."""
    sizes = dict(tree.files)
    notes = [_recognised(marked), *marked.notes, *said(marked.traps), *_unannotated(tree, marked)]
    if tree.ours:
        notes.append(note_ours(tree.title, sorted(tree.ours)))
    entries: dict[str, list[Entry]] = {}
    for path in sorted(marked.annotations, key=natural_key):
        split, classes = marked.splits.get(path, ALL), marked.annotations[path].classes
        entries.setdefault(split, []).append(Entry(tree.number(path), path, classes, sizes[path]))
    entries = {split: entries[split] for split in ("train", "validation", "test", ALL) if split in entries}
    if len(entries) > 1 and (rest := entries.pop(ALL, [])):
        if "train" in entries:
            notes.append(
                f"{counted(len(rest), 'photo')} beside the splits left out: {some([each.name for each in rest])}."
            )
        else:
            entries["train"] = rest
    return Listing(
        title=str(tree.title),
        name=tree.name,
        store=tree.store,
        entries=entries or {ALL: []},
        class_names=marked.class_names,
        task=marked.task,
        notes=tuple(notes),
        bad=marked.bad,
        annotations={tree.number(path): each for path, each in marked.annotations.items()},
        things=marked.things,
    )


def _recognised(marked: MarkedPhotos) -> str:
    """Return in one line what was recognised: "Annotations: COCO JSON, 165 regions of 3 classes in 18 photos; ..."."""
    counts = [annotation.count for annotation in marked.annotations.values() if isinstance(annotation, Marks)]
    regions = f"{counted(sum(counts), 'region')} of " if counts else ""
    kinds, photos = counted(len(marked.class_names), "class", "classes"), counted(len(marked.annotations), "photo")
    empty = sum(not annotation.classes for annotation in marked.annotations.values())
    nothing = f", {empty:,} of them with nothing marked" if empty else ""
    return f"Annotations: {marked.form}, {regions}{kinds} in {photos}{nothing}; the task is '{marked.task.name}'."


def _unannotated(tree: FileTree, marked: MarkedPhotos) -> list[str]:
    """Return a note on photos that no annotation speaks of, which are left out."""
    bad = {image.path for image in marked.bad}
    left = [
        path
        for path in tree.photos.paths
        if path not in marked.annotations
        and path not in marked.others
        and not any(map(speaks_of_masks, path.split("/")[:-1]))
        and tree.file(path).name not in bad
    ]
    if not left:
        return []
    verb = "is" if len(left) == 1 else "are"
    return [f"{counted(len(left), 'image')} without annotation {verb} left out: {some(left)}."]


def list_as(spec: str, how: Opening, list_others: Callable[[str, Opening], Listing]) -> Listing:
    """Return the images of "boxes:NAME" and the like; see `Prefix.select`.

    Raises:
        DataError: NAME has no annotations, or not such as the task needs.
    """
    task, _, name = spec.partition(":")
    if not name.strip():
        raise DataError(f"Say which data: {task}:FOLDER, a folder of photos with annotations.")
    listing = list_others(os.path.expanduser(name), replace(how, marked=task))
    if task != WHOLE and listing.task.name != task:
        raise DataError(
            f"'{name}' has no annotations that are read, as '{task}:' needs them; name a folder of photos with some."
        )
    return listing
