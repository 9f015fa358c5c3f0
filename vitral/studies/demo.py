"""The demo: the paper's pipeline on real data in minutes, with the comparison that the paper is about.

A small ViT is pre-trained on generated images, fine-tuned at a higher resolution on handwritten digits with three seeds,
and trained from scratch on the same budget with three seeds.
"""

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vitral.classifier.load import load
from vitral.described import read_object
from vitral.errors import StudyError
from vitral.events import Listener, Message, ignore, show
from vitral.files import write_file
from vitral.outputs import check_folder
from vitral.paths import CLASSIFIER
from vitral.report.page import write_report
from vitral.report.results import Curve, CurveGroup, RunReport
from vitral.report.study import Study, StudyArm
from vitral.studies.design import OWN_SEED, Arm, Cell, Design
from vitral.studies.rows import in_turn, read_rows
from vitral.studies.run_report import run_report, training_images
from vitral.studies.run_study import run_study
from vitral.studies.speech import PYTHON, Speech
from vitral.studies.trainings import Training, carry_out
from vitral.tasks.single_label import SingleLabel
from vitral.training.records.logs import read_metrics
from vitral.training.records.run_folder import STUDY_CELLS, STUDY_FILES, clear_run, clear_study
from vitral.training.request import Request

SOURCE = "visualatom-mini"
DATA = "digits"
MODEL = "vit-nano4"
SEEDS = (0, 1, 2)
PRETRAINED = "pre-trained, then fine-tuned"
SCRATCH = "from scratch"
DESIGN = Design(
    title="A small ViT on handwritten digits, with and without pre-training",
    headline=SingleLabel.headline,
    arms=(
        Arm("pretrained", Training(Request("pre-train", SOURCE, model=MODEL, recipe="demo-pretrain")), OWN_SEED),
        Arm(
            "finetune",
            Training(Request("fine-tune", DATA, MODEL, recipe="demo-finetune")),
            SEEDS,
            "pretrained",
            PRETRAINED,
        ),
        Arm("scratch", Training(Request("fine-tune", DATA, MODEL, recipe="demo-scratch")), SEEDS, label=SCRATCH),
    ),
)
ACCURACY = SingleLabel.headline
MARK = "demo.json"
REPORT = "report.html"
UNFINISHED = {"finished": False}  # in the mark, until the result takes its place


@dataclass(frozen=True)
class DemoResult:
    """What the demo showed: the figures of all its runs, the folder of the first fine-tuned classifier, and the page."""

    study: Study
    classifier: Path
    report: Path
    seconds: float

    @property
    def arms(self) -> tuple[StudyArm, ...]:
        """The two that are compared, the pre-trained one first."""
        return self.study.arms[1:]

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            "arms": [
                {
                    "name": arm.name,
                    "accuracies": list(arm.values(ACCURACY.name)),
                    "mean": arm.mean(ACCURACY.name),
                    "deviation": arm.deviation(ACCURACY.name),
                }
                for arm in self.arms
            ],
            "classifier": str(self.classifier),
            "report": str(self.report),
            "seconds": self.seconds,
        }


def demo(out: str | Path, *, command: str = "", speech: Speech = PYTHON, listener: Listener = show) -> DemoResult:
    """Run the whole pipeline into a folder: an earlier demo there is replaced, an interrupted one continues.

    Args:
        out: The folder.
        command: The command that the user typed, for the report.
        speech: The words of the report.
        listener: Receives messages and progress.

    Raises:
        StorageError: The folder holds something else than a demo.
        StudyError: A run failed.
    """
    started = time.monotonic()
    folder = Path(out)
    _begin(folder)
    listener(
        Message(
            f"A small ViT learns from generated images ({SOURCE}), whose labels cost nothing, then from {DATA} at a higher "
            f"resolution; and the same network from {DATA} alone, on the same budget; {len(SEEDS)} seeds each."
        )
    )
    study = run_study(DESIGN, folder, listener=listener)
    if study.failures:
        failure = study.failures[0]
        raise StudyError(f"The run '{failure.run}' of the demo failed: {failure.error}")
    page = folder / REPORT
    cells = DESIGN.cells(folder)
    write_report(replace(_report(cells, replace(study, arms=study.arms[1:]), speech), command=command), page)
    result = DemoResult(study, cells[1].folder / CLASSIFIER, page, time.monotonic() - started)
    write_file(folder / MARK, json.dumps(result.to_json(), indent=2))
    return result


def _begin(folder: Path) -> None:
    """Make room for a demo, unless an unfinished one is here: that continues, in whatever process."""
    runs = [cell.name for cell in DESIGN.cells(folder)]
    check_folder(folder, own=(MARK, REPORT, STUDY_CELLS, *STUDY_FILES, *runs), replace=(folder / MARK).is_file())
    with in_turn(folder):
        if read_object(folder / MARK) == UNFINISHED:
            return
        clear_study(folder)
        for run in runs:
            clear_run(folder / run)
        write_file(folder / MARK, json.dumps(UNFINISHED))


def _report(cells: list[Cell], compared: Study, speech: Speech) -> RunReport:
    """Return what the page shows, all of it from what the runs left on the disk."""
    work = DESIGN.arm("finetune").work
    assert isinstance(work, Training)
    pretraining, tuning = cells[:2]
    first = carry_out(work.request_of(tuning), tuning.folder, ignore)  # which may be another process's
    run, network, rows = first.run, first.classifier.model, read_rows(cells)
    before = load(pretraining.folder / CLASSIFIER)
    labels = {arm.name: arm.label for arm in DESIGN.arms}
    tuned, scratch = (ACCURACY.text(arm.mean(ACCURACY.name)) for arm in compared.arms)
    return replace(
        run_report(first, speech=speech),
        title="A Vision Transformer, pre-trained and fine-tuned",
        summary=(
            f"Pre-trained on generated images at {before.model.image_size[0]} pixels, then fine-tuned on handwritten digits at "
            f"{network.image_size[0]}: {tuned} of the test digits are read right, against "
            f"{scratch} from scratch."
        ),
        comparison=compared,
        comparison_note=(
            f"The same network on the same {first.training.steps} steps of the same digits, {len(compared.arms[0].runs)} seeds "
            f"each, scored on the {first.evaluation.num_examples} test digits; mean ± standard deviation. Pre-training took "
            f"{rows[pretraining.name].seconds:.0f} s once; all runs together {sum(row.seconds for row in rows.values()):.0f} s."
        ),
        curves=(
            CurveGroup("Pre-training", (Curve("pre-training", read_metrics(pretraining.folder)),)),
            CurveGroup(
                "On the digits", tuple(Curve(labels[cell.arm], read_metrics(cell.folder)) for cell in cells[1:])
            ),
        ),
        images=(training_images(pretraining.folder, SOURCE), training_images(run.folder, run.data.name)),
    )
