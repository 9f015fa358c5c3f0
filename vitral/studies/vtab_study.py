"""VTAB-1k: one network on 19 tasks of 1,000 images each, by a linear probe in minutes or as the paper fine-tunes."""

import hashlib
import time as clock
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch

from vitral.advice import argument, counted
from vitral.classifier.classifier import Classifier
from vitral.classifier.load import load
from vitral.data.listing import Opening
from vitral.data.vtab.raw import why_not
from vitral.data.vtab.task_data import Spec, open_task, source_of, task_named
from vitral.data.vtab.tasks import TASKS
from vitral.errors import StudyError
from vitral.evaluation.baselines import Describer
from vitral.evaluation.opening import open_test
from vitral.evaluation.probes import fit_probe
from vitral.events import Listener, Message, ignore, show
from vitral.outputs import check_folder
from vitral.paths import RUNS
from vitral.report.study import Study
from vitral.report.vtab import JSON_FILE, TABLE_FILE, VtabTable, unscored
from vitral.report.written import write_result
from vitral.studies.design import OWN_SEED, Arm, Cell, Design
from vitral.studies.run_study import run_study
from vitral.studies.trainings import Training, named
from vitral.tasks.single_label import SingleLabel
from vitral.training.optimization.optimizers import autocast_here, training_device
from vitral.training.records.run_folder import STUDY_CELLS, STUDY_FILE, STUDY_FILES
from vitral.training.request import Request
from vitral.training.settings.durations import seconds as read_seconds

Protocol = Literal["light", "paper"]
RECIPE = "finetune-vtab"
TEST_IMAGES = 2_000  # of the light protocol: the uncertainty is then at most 2.2 points
TRAINED_ON = 1_000
TIMED = 8  # images that tell how long the others take
ACCURACY = SingleLabel.headline.name
IMAGES = "images"


def vtab(
    classifier: str | Path,
    data: str | Path,
    *,
    protocol: Protocol = "light",
    tasks: Sequence[str] | str | None = None,
    test_images: int | None = TEST_IMAGES,
    runs: int = 1,
    out: str | Path | None = None,
    time: str | float | None = None,
    started: float | None = None,
    listener: Listener = show,
) -> VtabTable:
    """Score a network on VTAB-1k's tasks, those whose images are there; the others are named.

    The same call continues what was interrupted, and several processes may share its folder.

    Args:
        classifier: The name, folder or file, as `load` takes it; only its features count.
        data: The folder with the datasets: as TFDS prepared them, the vtab-1k folders with their lists, the files of the
            datasets' authors (with the package vitral-vtab installed), or wds_vtab-* shards.
        protocol: "light" fits a linear probe on frozen features at the network's own size, minutes on a CPU; "paper" fine-tunes
            all weights for 2,500 steps of 512 images at 384 pixels (paper, appendix B.1.1), for a GPU.
        tasks: The names of some tasks, in a list or with commas between them; None for all 19.
        test_images: The most test images of each task in the light protocol, evenly spaced; None for all, as in the paper's.
        runs: The number of seeds of the paper's protocol; the light one has no random choice.
        out: The folder; None for one in runs/ named after the classifier.
        time: The budget; no task begins that is expected to end after it.
        started: The `time.monotonic()` at which the budget began; None for now.
        listener: Receives the plan, progress and problems.

    Raises:
        StudyError: A task is unknown, the folder holds another study, or every task failed.
        DataError: There is no folder of that name, or a task is not VTAB's.
        StorageError: Something cannot be written.
    """
    root = Path(data)
    specs = {name: Spec(root, task_named(name), both=True) for name in _wanted(tasks)}
    if protocol == "light" and runs != 1:
        raise StudyError("A linear probe in closed form has no random choice: one run is all; leave the number out.")
    if runs < 1 or (test_images is not None and test_images < 1):
        raise StudyError("A network is scored by at least one run, and on at least one image of each task.")
    folder = RUNS / f"vtab-{_short(classifier)}-{protocol}" if out is None else Path(out)
    ours = (folder / STUDY_CELLS).is_dir() or (folder / STUDY_FILE).is_file()
    check_folder(folder, own=_own(folder), replace=ours)
    missing = _missing(root, specs, listener)
    network, seeds = SharedNetwork(str(classifier)), tuple(range(runs)) if protocol == "paper" else OWN_SEED
    provenance = network.classifier.provenance
    if provenance.is_random:
        listener(
            Message(
                f"'{classifier}' has random weights: its figures are those of an untrained network.",
                warning=True,
            )
        )
    arms = tuple(
        Arm(name, Probe(network, spec, test_images) if protocol == "light" else paper_work(network, spec), seeds)
        for name, spec in specs.items()
        if name not in missing
    )
    design = Design(f"{classifier} on VTAB-1k, {protocol} protocol", SingleLabel.headline, arms)
    budget = None if time is None else read_seconds(time)
    study = run_study(design, folder, budget_seconds=budget, started=started, listener=listener)
    table = _table(str(classifier), protocol, specs, study, missing, test_images)
    write_result(table.to_json(), table.markdown(), folder, json_file=JSON_FILE, table_file=TABLE_FILE)
    return table


def _wanted(tasks: Sequence[str] | str | None) -> list[str]:
    if tasks is None:
        return [task.name for task in TASKS]
    names = [name.strip() for name in tasks.split(",")] if isinstance(tasks, str) else list(tasks)
    return [task_named(name).name for name in dict.fromkeys(names)]


def _missing(root: Path, specs: Mapping[str, Spec], listener: Listener) -> list[str]:
    """Return the tasks without images, and warn of them, or refuse if none has images."""
    if not root.is_dir():
        raise StudyError(f"There is no folder '{root}'; name the one with VTAB's datasets by {argument('data')}.")
    missing = [name for name, spec in specs.items() if not source_of(spec)]
    reasons = "".join(dict.fromkeys(f" {reason}" for name in missing if (reason := why_not(root, specs[name].task))))
    if len(missing) == len(specs):
        raise StudyError(
            reasons.strip()
            or f"'{root}' has no dataset of {', '.join(missing)}: none as TFDS prepares it, no folder of vtab-1k, no "
            "files of its authors, and no wds_vtab-* shards."
        )
    if missing:
        listener(
            Message(
                f"No images of {counted(len(missing), 'task')} in '{root}': {', '.join(missing)}.{reasons}",
                warning=True,
            )
        )
    return missing


def _own(folder: Path) -> list[str]:
    """Return the names in a folder that are of such a study: its files, and the runs of tasks."""
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    tasks = {task.name for task in TASKS}
    runs = [name for name in names if name in tasks or name.rpartition("-")[0] in tasks]
    return [JSON_FILE, TABLE_FILE, STUDY_CELLS, *STUDY_FILES, *runs]


def _short(classifier: str | Path) -> str:
    letters = (letter if letter.isalnum() or letter in "-._@" else "-" for letter in str(classifier))
    return "".join(letters).strip("-.") or "network"


@dataclass
class SharedNetwork:
    """The network of all tasks by the name that the user gave, loaded once."""

    name: str

    @cached_property
    def classifier(self) -> Classifier:
        """The network, which sees whole images: what counts in many of the tasks is at the border."""
        loaded = load(self.name, tuned=False, listener=ignore).to(training_device())
        whole = loaded.preprocessing.whole()
        made = Classifier(loaded.model, whole, loaded.class_names, provenance=loaded.provenance, task=loaded.task)
        made.folder = loaded.folder  # its run logs that test splits are opened
        return made

    @cached_property
    def fingerprint(self) -> str:
        """A hash of its weights and its preprocessing: other weights under the same name are another network."""
        classifier = self.classifier
        hashed = hashlib.sha256(repr(classifier.preprocessing).encode())
        for name, tensor in sorted(classifier.model.state_dict().items()):
            hashed.update(name.encode())
            hashed.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        return hashed.hexdigest()

    @cached_property
    def image_seconds(self) -> float:
        """Seconds that the features of an image take."""
        classifier = self.classifier
        predictor, preprocessing = classifier.predictor, classifier.preprocessing
        images = torch.zeros(TIMED, 3, *preprocessing.image_size)
        with autocast_here():
            predictor.features(images)
            began = clock.perf_counter()
            predictor.features(images)
        return (clock.perf_counter() - began) / TIMED


@dataclass(frozen=True)
class Probe:
    """The light protocol on one task, with at most so many test images; None for all."""

    network: SharedNetwork
    spec: Spec
    most: int | None

    def question(self) -> Mapping[str, Any]:
        """Return the network, the images and how many are scored."""
        return {
            "classifier": self.network.name,
            "weights": self.network.fingerprint,
            "data": str(self.spec),
            "source": source_of(self.spec),
            "test": self.most,
        }

    def seconds(self) -> float | None:
        """Return the expected seconds of the features; None if all test images are scored, whose number is unknown."""
        return None if self.most is None else (TRAINED_ON + self.most) * self.network.image_seconds

    def run(self, cell: Cell, listener: Listener) -> Mapping[str, float]:
        """Fit a probe on the features of 1,000 images, and return its accuracy on the test images."""
        data = open_task(self.spec, Opening(listener=listener), most_test=self.most)
        classifier = self.network.classifier
        open_test(classifier, data, "test", "vtab", listener)
        describer = Describer.of(classifier, context=autocast_here)
        train, test = (
            describer.describe(data.splits[split], listener=named(listener, cell.name)) for split in ("train", "test")
        )
        probe = fit_probe(train.values[0], train.labels, classes=len(data.class_names))
        return {ACCURACY: probe.accuracy(test.values[0], test.labels), IMAGES: float(len(test.labels))}


@dataclass(frozen=True)
class PaperTraining(Training):
    """The paper's protocol on one task."""

    network: SharedNetwork

    def question(self) -> Mapping[str, Any]:
        """Return the request and the identity of the weights."""
        return {**super().question(), "weights": self.network.fingerprint}


def paper_work(network: SharedNetwork, spec: Spec) -> PaperTraining:
    """Return the paper's protocol on one task, without augmentations that would change the class of its images."""
    harmless = (("flip", spec.task.flip, "false"), ("crop", spec.task.crop, '"none"'))
    changes = tuple(f"augmentation.{name}={off}" for name, allowed, off in harmless if not allowed)
    request = Request("fine-tune", str(spec), network.name, recipe=RECIPE, overrides=changes, baselines=False)
    return PaperTraining(request, network)


def _table(
    classifier: str,
    protocol: Protocol,
    specs: Mapping[str, Spec],
    study: Study,
    missing: Sequence[str],
    most: int | None,
) -> VtabTable:
    scores = []
    for score in unscored(list(specs)):
        if score.name in missing:
            scores.append(replace(score, problem="its images are not there."))
            continue
        arm = study.arm(score.name)
        images = arm.values(IMAGES)
        failed = (each.error for each in study.failures if score.name in (each.run, each.run.rpartition("-")[0]))
        scores.append(
            replace(
                score,
                accuracies=arm.values(ACCURACY),
                images=int(images[0]) if images else None,
                source=source_of(specs[score.name]),
                problem="" if arm.runs else next(failed, ""),  # no error: it has not been tried yet
            )
        )
    return VtabTable(classifier, protocol, tuple(scores), study.left, most)
