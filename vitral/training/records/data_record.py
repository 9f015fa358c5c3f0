"""What a run's data were, so that it does not silently continue on others."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vitral.advice import argument
from vitral.data.source import TRAINED, DataSet, Inventory, changes, drawn, same_data, share_of
from vitral.described import fits, read_object
from vitral.errors import TrainingError
from vitral.files import write_file
from vitral.paths import DATA_FILE
from vitral.training.records.run_folder import STUDY_CELLS, SWEEP, read_run, update_run

OTHERS = "it is another data set, or other images"
NAMED = 3  # changes that a message names
HISTORY = "data_changes"  # in run.json: what the user said may change
REDRAWN = "redrawn"  # in each of those: the splits to score on that were drawn again after some training


Further = Mapping[str, DataSet]  # what a method learns from besides the data, by name


def keep_data(folder: Path, data: DataSet, further: Further) -> None:
    """Write what the data are into a run folder, and what a method learns from besides."""
    said = {**_kept(data), "class_names": list(data.class_names), TRAINED: data.contents.get("train", "")}
    said["further"] = {name: _kept(source) for name, source in further.items()}
    write_file(folder / DATA_FILE, json.dumps(said, indent=1))


def drawn_before(folder: Path) -> str:
    """Return the fingerprint of the data of the run in a folder, which says how they were split; empty without one."""
    return str(_read(folder).get("fingerprint") or read_run(folder).get("data_fingerprint") or "")


def drawn_beside(folder: Path) -> list[str]:
    """Return the fingerprints of the data of the runs of a sweep in a folder, and of those of one study with it."""
    study = folder.parent.iterdir() if (folder.parent / STUDY_CELLS).is_dir() else ()
    runs = sorted(run for run in (*(folder / SWEEP).glob("lr-*"), *study) if (run / DATA_FILE).is_file())
    return list(dict.fromkeys(map(drawn_before, runs)))


def _kept(data: DataSet) -> dict[str, Any]:
    inventory = {
        split: {name: list(what) for name, what in classes.items()} for split, classes in data.inventory.items()
    }
    return {"fingerprint": data.fingerprint, "splits": inventory}


def check_data(folder: Path, data: DataSet, further: Further, *, changed: bool) -> list[str]:
    """Return what became of the data since the run in a folder began; nothing if they are the same.

    Args:
        folder: the run folder.
        data: as they are now.
        further: what its method learns from besides, as that is now.
        changed: whether the user said that they may have changed.

    Raises:
        TrainingError: they did, and nothing was said; or the classes are others, which one network cannot learn.
    """
    differences = [*_differences(folder, data, changed=changed), *_further_differences(folder, further)]
    if differences and not changed:
        raise TrainingError(
            f"The data changed since the run in '{folder}' began: {_some(differences)}. Give it the data as they were, "
            f"or continue with these by {argument('data_changed', True)}."
        )
    return differences


def _differences(folder: Path, data: DataSet, *, changed: bool) -> list[str]:
    kept, was = _read(folder), drawn_before(folder)
    if not was or was == data.fingerprint:
        return []
    if not kept and "request" not in read_run(folder):
        return []  # begun by an earlier version, whose fingerprint was of something else
    if same_data(was, data.fingerprint) and drawn(was) != drawn(data.fingerprint):
        return ["the images are split in another way, because their groups changed"]
    if same_data(was, data.fingerprint):
        return [f"a share of {share_of(data.fingerprint)} of the training photos is used, was {share_of(was)}"]
    names = kept.get("class_names", list(data.class_names))
    renamed = _renamed(names, data.class_names)
    if renamed is None or (renamed and not changed):
        raise TrainingError(_other_classes(folder, data, names, renamed or {}))
    before = {
        split: {renamed.get(name, name): what for name, what in classes.items()}
        for split, classes in kept.get("splits", {}).items()
    }
    differences = [f"the class '{old}' is now called '{new}'" for old, new in renamed.items()]
    differences += changes(before, data.inventory)
    return differences or [OTHERS]


def _further_differences(folder: Path, further: Further) -> list[str]:
    kept = _read(folder).get("further", {})
    differences = []
    for name, data in further.items():
        before = kept.get(name)
        if before is not None and before["fingerprint"] != data.fingerprint:
            changed = changes(before["splits"], data.inventory) or [OTHERS]
            differences += [f"of the further source '{name}', {what}" for what in changed]
    return differences


def _renamed(names: Sequence[str], now: Sequence[str]) -> dict[str, str] | None:
    """Return which classes have other names, the network's outputs being the same; None if it is not that alone.

    The network's outputs are the classes in their order: under a new name that changes the order, outputs would stand for
    other classes.
    """
    if len(names) != len(now):
        return None
    renamed = {old: new for old, new in zip(names, now, strict=True) if old != new}
    return None if set(renamed) & set(now) or set(renamed.values()) & set(names) else renamed


def _other_classes(folder: Path, data: DataSet, names: Sequence[str], renamed: Mapping[str, str]) -> str:
    gone, new = (sorted(set(one) - set(other)) for one, other in ((names, data.class_names), (data.class_names, names)))
    what = [*(f"no '{name}' any more" for name in gone), *(f"'{name}' is new" for name in new)]
    going_on = f"; if they only have new names, continue by {argument('data_changed', True)}" if renamed else ""
    return (
        f"The classes of '{data.name}' are not those that the run in '{folder}' began with "
        f"({_some(what) or 'they have another order'}); begin a new run on them, with "
        f"{argument('source', str(folder))}{going_on}."
    )


def record_change(folder: Path, data: DataSet, further: Further, what: list[str], *, step: int) -> None:
    """Note in a run folder that the data changed after update `step`."""
    before = read_run(folder).get("data_fingerprint")
    other = step and drawn(str(before or "")) != drawn(data.fingerprint)  # a share leaves what is scored as it is
    entry = {
        "after_step": step,
        "from": before,
        "to": data.fingerprint,
        "what": what,
        REDRAWN: [split for split in data.shared_out if split != "train"] if other else [],
    }
    update_run(folder, {"data_fingerprint": data.fingerprint, HISTORY: [*data_changes(folder), entry]})
    keep_data(folder, data, further)


def data_changes(folder: Path) -> list[dict[str, Any]]:
    """Return the changes of the data that a run went through, in order."""
    history = read_run(folder).get(HISTORY)
    return [entry for entry in history if isinstance(entry, dict)] if isinstance(history, list) else []


def redrawn(folder: Path) -> list[str]:
    """Return what a run's scores may suffer from splits that were drawn again as the data changed: a line, or none."""
    lists = [entry.get(REDRAWN) for entry in data_changes(folder)]
    splits = dict.fromkeys(split for names in lists if fits(list[str], names) for split in names or ())
    if not splits:
        return []
    return [
        "The splits were drawn anew from the changed data: images that the run trained on before may now be "
        f"{' or '.join(splits)} images, and the scores too good."
    ]


def _read(folder: Path) -> dict[str, Any]:
    """Return what was kept; nothing where it is lost or damaged."""
    record = read_object(folder / DATA_FILE)
    if not _fits({"fingerprint": str, "class_names": tuple[str, ...], "splits": Inventory}, record):
        return {}
    further = record.get("further")  # unknown to versions up to 0.2
    hints = {"fingerprint": str, "splits": Inventory}
    named = further.items() if isinstance(further, dict) else ()
    return record | {"further": {name: source for name, source in named if _fits(hints, source)}}


def _fits(hints: Mapping[str, Any], record: object) -> bool:
    return isinstance(record, dict) and all(name in record and fits(hint, record[name]) for name, hint in hints.items())


def _some(what: list[str]) -> str:
    more = f", and {len(what) - NAMED} more" if len(what) > NAMED else ""
    return "; ".join(what[:NAMED]) + more
