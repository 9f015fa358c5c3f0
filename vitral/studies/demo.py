"""The demo: the paper's pipeline on real data in minutes, with the comparison that the paper is about.

A small ViT is pre-trained on generated images, fine-tuned at a higher resolution on handwritten digits with three seeds,
and trained from scratch on the same budget with three seeds.
"""

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vitral.events import Event, Listener, Message, Progress
from vitral.files import write_file
from vitral.outputs import check_folder
from vitral.progress import show
from vitral.report.page import write_report
from vitral.report.results import Arm, Curve, CurveGroup, RunReport
from vitral.studies.run_report import run_report, training_images
from vitral.training.finetune import finetune
from vitral.training.pretrain import pretrain
from vitral.training.records.run_folder import clear_run
from vitral.training.result import RunResult
from vitral.training.speech import PYTHON, Speech

SOURCE, DATA = "visualatom-mini", "digits"
MODEL = "vit-nano4"
SEEDS = (0, 1, 2)
PRETRAINED, SCRATCH = "pre-trained, then fine-tuned", "from scratch"
MARK, REPORT = "demo.json", "report.html"
RUNS_MADE = ("pretrained", *(f"{arm}-{seed}" for arm in ("finetune", "scratch") for seed in SEEDS))


@dataclass(frozen=True)
class DemoResult:
    """What the demo showed.

    Attributes:
        arms: test accuracies by seed, the pre-trained arm first.
        classifier: the folder of the first fine-tuned classifier.
        report: the page.
        seconds: from start to end.
    """

    arms: tuple[Arm, Arm]
    classifier: Path
    report: Path
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            "arms": [
                {"name": arm.name, "accuracies": list(arm.accuracies), "mean": arm.mean, "deviation": arm.deviation}
                for arm in self.arms
            ],
            "classifier": str(self.classifier),
            "report": str(self.report),
            "seconds": self.seconds,
        }


def demo(out: str | Path, *, command: str = "", speech: Speech = PYTHON, listener: Listener = show) -> DemoResult:
    """Run the whole pipeline into a folder; an earlier demo there is replaced.

    Args:
        out: the folder.
        command: what was typed, for the report.
        speech: in whose words the report speaks.
        listener: hears messages and progress.

    Raises:
        StorageError: the folder holds something else than a demo.
    """
    started = time.monotonic()
    folder = Path(out)
    _clear(folder)
    listener(Message(f"1/3  Pre-training a small ViT on generated images ({SOURCE}), whose labels cost nothing."))
    pretrained = pretrain(
        SOURCE, model=MODEL, recipe="demo-pretrain", out=folder / "pretrained", listener=_named(listener, "pre-train")
    )
    listener(Message(f"2/3  Fine-tuning it on {DATA} at a higher resolution, {len(SEEDS)} seeds."))
    tuned = [_tune(folder, seed, pretrained.classifier_folder, "demo-finetune", listener) for seed in SEEDS]
    listener(Message(f"3/3  Training the same network from scratch on the same budget, {len(SEEDS)} seeds."))
    scratch = [_tune(folder, seed, MODEL, "demo-scratch", listener) for seed in SEEDS]
    arms = (_arm(PRETRAINED, tuned), _arm(SCRATCH, scratch))
    seconds = time.monotonic() - started
    page = folder / REPORT
    shown = run_report(tuned[0], speech=speech)
    write_report(replace(_report(shown, pretrained, tuned, scratch, arms, seconds), command=command), page)
    result = DemoResult(arms, tuned[0].classifier_folder, page, time.monotonic() - started)
    write_file(folder / MARK, json.dumps(result.to_json(), indent=2))
    return result


def _clear(folder: Path) -> None:
    check_folder(folder, own=(MARK, REPORT, *RUNS_MADE), replace=(folder / MARK).is_file())
    for run in RUNS_MADE:
        clear_run(folder / run)
    write_file(folder / MARK, "{}")


def _tune(folder: Path, seed: int, source: str | Path, recipe: str, listener: Listener) -> RunResult:
    name = recipe.removeprefix("demo-")
    return finetune(
        DATA,
        source=source,
        recipe=recipe,
        out=folder / f"{name}-{seed}",
        seed=seed,
        baselines=seed == SEEDS[0],
        listener=_named(listener, f"{name} {seed + 1}/{len(SEEDS)}"),
    )


def _named(listener: Listener, task: str) -> Listener:
    """Pass a run's progress on under a name of its own, and leave its messages out: seven runs would say the same."""

    def listen(event: Event) -> None:
        if isinstance(event, Progress) and event.task == "train":
            listener(replace(event, task=task))
        elif isinstance(event, Message) and event.warning:
            listener(replace(event, verdict=False))  # of seven results, which nobody says at the end

    return listen


def _arm(name: str, results: list[RunResult]) -> Arm:
    return Arm(name, tuple(result.evaluation.scores()["top1"] for result in results))


def _report(
    shown: RunReport,
    pretrained: RunResult,
    tuned: list[RunResult],
    scratch: list[RunResult],
    arms: tuple[Arm, Arm],
    seconds: float,
) -> RunReport:
    first = tuned[0]
    steps = first.training.steps
    curves = [*((PRETRAINED, result) for result in tuned), *((SCRATCH, result) for result in scratch)]
    low, high = (run.classifier.model.image_size[0] for run in (pretrained, first))
    return replace(
        shown,
        title="A Vision Transformer, pre-trained and fine-tuned",
        summary=(
            f"Pre-trained on generated images at {low} pixels, then fine-tuned on handwritten digits at {high}: "
            f"{arms[0].mean:.1%} of the test digits are read right, against {arms[1].mean:.1%} from scratch."
        ),
        comparison=arms,
        comparison_note=(
            f"The same network on the same {steps} steps of the same digits, {len(SEEDS)} seeds each, scored on the "
            f"{first.evaluation.num_examples} test digits; mean ± standard deviation. Pre-training took "
            f"{pretrained.training.seconds:.0f} s once; the whole demo {seconds:.0f} s."
        ),
        curves=(
            CurveGroup("Pre-training", (Curve("pre-training", pretrained.training.history),)),
            CurveGroup("On the digits", tuple(Curve(name, result.training.history) for name, result in curves)),
        ),
        images=(training_images(pretrained), training_images(first)),
    )
