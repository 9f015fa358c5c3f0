"""A sweep over learning rates: it never chooses by what it reports, and trains with the best on all but that."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.cases import every_case
from tests.cli.conftest import write_images
from vitral.errors import TrainingError, TrainingInterrupted
from vitral.events import Event, Message, Progress, ignore
from vitral.studies import sweep
from vitral.studies.finetune import finetune
from vitral.studies.sweep import best_rate, held_out_share, sweep_rates
from vitral.tasks.single_label import SINGLE_LABEL
from vitral.tasks.task import Figure
from vitral.training.request import Request
from vitral.training.run import run_request
from vitral.training.settings.recipe import load_recipe


def test_rates_of_a_sweep() -> None:
    assert sweep_rates(load_recipe("finetune-cifar10")) == (0.001, 0.003, 0.01, 0.03)
    assert sweep_rates(load_recipe("finetune-imagenet")) == (0.003, 0.01, 0.03, 0.06)
    assert sweep_rates(load_recipe("finetune")) == (3.3e-5, 1e-4, 3e-4, 1e-3)
    assert best_rate({0.1: 0.5, 0.01: 0.9, 0.03: 0.9}, SINGLE_LABEL.headline) == 0.01
    error = Figure("mae", "mean absolute error", more_is_better=False, is_share=False)
    assert best_rate({0.1: 0.5, 0.01: 0.9, 0.03: 0.5}, error) == 0.03


@every_case(("images", "share"), [(2_040, 0.1), (3_680, 0.1), (50_000, 0.02), (1_281_167, 0.01)])
def test_the_paper_holds_out_a_share_by_the_size_of_the_dataset(images: int, share: float) -> None:
    """Appendix B.1.1: Flowers, Pets, CIFAR, ImageNet."""
    assert held_out_share(images) == share


def test_without_a_test_split_a_sweep_never_chooses_by_what_it_reports(tmp_path: Path) -> None:
    write_images(tmp_path / "photos" / "train", {"blue": 40, "red": 40})
    write_images(tmp_path / "photos" / "val", {"blue": 7, "red": 7})
    heard: list[Event] = []
    overrides = ["steps=4", "image_size=16", "batch_size=8", "optimizer.sweep=[0.001, 0.01]"]
    result = finetune(
        tmp_path / "photos",
        source="vit-nano4",
        out=tmp_path / "run",
        overrides=overrides,
        sweep=True,
        baselines=False,
        listener=heard.append,
    )
    assert {name: len(split) for name, split in result.run.data.splits.items()} == {"train": 80, "validation": 14}
    for trial in (tmp_path / "run" / "sweep").glob("lr-*"):
        described = json.loads((trial / "run.json").read_text())
        assert described["images"] == {"train": "72", "validation": "8"}
    assert any("8 training photos (10%) held out" in event.text for event in heard if isinstance(event, Message))
    assert not any("validation/accuracy" in row for row in result.training.history)
    assert result.evaluation.num_examples == 14


def test_a_sweep_chooses_by_validation_and_trains_on_all_but_the_test(tmp_path: Path) -> None:
    heard: list[Event] = []
    options: dict[str, Any] = {
        "source": "vit-mu4",
        "out": tmp_path / "run",
        "overrides": ["steps=8", "image_size=16", "batch_size=32", "optimizer.sweep=[0.001, 0.5]"],
        "baselines": False,
    }
    result = finetune("digits", sweep=True, listener=heard.append, **options)
    assert {path.name for path in (tmp_path / "run" / "sweep").glob("lr-*")} == {"lr-0.001", "lr-0.5"}
    assert result.plan.recipe.optimizer.lr in (0.001, 0.5)
    assert result.plan.recipe.optimizer.name == "sgd"
    assert {name: len(split) for name, split in result.run.data.splits.items()} == {"train": 1438, "test": 359}
    assert any("is best" in event.text for event in heard if isinstance(event, Message))
    for trial in (tmp_path / "run" / "sweep").glob("lr-*"):
        assert '"num_examples": 179' in (trial / "evaluation.json").read_text()


def test_a_time_too_short_for_a_sweep_is_refused_at_once_with_one_for_all_its_runs(tmp_path: Path) -> None:
    heard: list[Event] = []
    overrides = ["image_size=16", "batch_size=32", "optimizer.sweep=[0.001, 0.5]"]
    with pytest.raises(TrainingError, match="all 3 runs together") as refusal:
        finetune(
            "digits",
            source="vit-mu4",
            out=tmp_path / "run",
            overrides=overrides,
            sweep=True,
            time="0.1s",
            listener=heard.append,
        )
    assert "time='0.1s'` is too short" in str(refusal.value)
    assert not any("Sweep 1/3" in event.text for event in heard if isinstance(event, Message))


def test_training_alone_refuses_a_sweep_in_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    request = Request("fine-tune", "digits", "vit-mu4", out=tmp_path / "run", overrides=("steps=2",), sweep=True)
    with pytest.raises(TrainingError, match="is a sweep, which is many runs"):
        run_request(request, listener=ignore)
    assert not (tmp_path / "run").exists()


def test_an_interrupted_sweep_keeps_its_trials_and_goes_on_without_being_told_that_it_is_one(tmp_path: Path) -> None:
    run = tmp_path / "run"

    def interrupt(event: Event) -> None:
        if isinstance(event, Message) and event.text.startswith("Sweep 2/3"):
            raise KeyboardInterrupt

    overrides = ["steps=3", "image_size=16", "batch_size=8", "optimizer.sweep=[0.001, 0.01]"]
    with pytest.raises(KeyboardInterrupt):
        finetune(
            "digits",
            source="vit-mu4",
            out=run,
            overrides=overrides,
            sweep=True,
            baselines=False,
            listener=interrupt,
        )
    log = (run / "sweep" / "lr-0.001" / "metrics.jsonl").read_bytes()
    result = finetune(out=run, resume=True, listener=ignore)
    assert (run / "sweep" / "lr-0.001" / "metrics.jsonl").read_bytes() == log
    assert {path.name for path in (run / "sweep").glob("lr-*")} == {"lr-0.001", "lr-0.01"}
    assert result.evaluation.num_examples == 359


def test_a_sweep_whose_best_rate_changed_is_refused_and_not_trained_on_with_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    overrides = ["steps=3", "image_size=16", "batch_size=8", "optimizer.sweep=[0.001, 0.01]"]
    result = finetune(
        "digits", source="vit-mu4", out=run, overrides=overrides, sweep=True, baselines=False, listener=ignore
    )
    was = result.run.recipe.optimizer.lr
    other = next(rate for rate in (0.001, 0.01) if rate != was)
    monkeypatch.setattr(sweep, "best_rate", lambda figures, headline: other)
    with pytest.raises(TrainingError, match=f"learning rate {was:g}, and now {other:g}"):
        finetune(out=run, resume=True, listener=ignore)
    assert load_recipe(run / "recipe.toml").optimizer.lr == was


def test_a_sweep_that_is_stopped_says_how_the_sweep_goes_on_and_not_the_trial(tmp_path: Path) -> None:
    def stop(event: Event) -> None:
        if isinstance(event, Progress) and event.task == "train" and event.done == 1:
            os.kill(os.getpid(), signal.SIGTERM)

    overrides = ["steps=3", "image_size=16", "batch_size=8", "optimizer.sweep=[0.001, 0.01]"]
    with pytest.raises(TrainingInterrupted, match="saved after step . of 3, in 'lr-0.001'; continue with") as stopped:
        finetune(
            "digits",
            source="vit-mu4",
            out=tmp_path / "run",
            overrides=overrides,
            sweep=True,
            baselines=False,
            listener=stop,
        )
    assert stopped.value.exit_code == 143
    assert str(stopped.value).endswith(f"`resume=True` `out={str(tmp_path / 'run')!r}`.")
