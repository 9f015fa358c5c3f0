"""What one step promises: its figures cost nothing until they are asked for, its parts name what they keep, a stop is heard."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.cases import every_case
from tests.training.conftest import CONFIG, Run
from vitral.classifier.classifier import Classifier
from vitral.data.batch import Batch
from vitral.data.generated import open_digits
from vitral.errors import RecipeError, Stopped, TrainingError, TrainingInterrupted
from vitral.evaluation.evaluate import predict_probabilities
from vitral.events import Listener, ignore
from vitral.images.preprocessing import PHOTOS
from vitral.models.families import build
from vitral.models.model import Model
from vitral.tasks.single_label import SINGLE_LABEL
from vitral.training import loop
from vitral.training.loop import train
from vitral.training.methods.masked_patches import MaskedPatches, MaskedPatchesSettings
from vitral.training.methods.method import build_method, method_of, training_batches
from vitral.training.methods.parallel import Engine
from vitral.training.methods.supervised import Supervised
from vitral.training.optimization.sharpness import Statistics
from vitral.training.records.checkpoints import load_newest, unpack
from vitral.training.settings.recipe import Recipe, build_recipe, load_recipe
from vitral.training.step import Step, StepResult, StopRequest


def make_step(recipe: Recipe) -> Step:
    return Step(build_method(build(CONFIG, seed=1).train(), recipe, SINGLE_LABEL), recipe, PHOTOS.normalize)


def make_batch(recipe: Recipe, step: int = 0) -> Batch:
    data = open_digits()
    return training_batches(data.splits["train"], recipe, image_size=(8, 8), augmentation=data.augmentation).batch(step)


def test_figures_are_fetched_where_they_are_logged_and_not_at_every_step(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[dict[str, float]] = []
    figures = StepResult.figures

    def watched(outcome: StepResult) -> dict[str, float]:
        fetched.append(figures(outcome))
        return fetched[-1]

    monkeypatch.setattr(StepResult, "figures", watched)
    monkeypatch.setattr(loop, "SHOWN_SECONDS", float("inf"))
    _, result = run.train()
    logged = [row for row in result.history if "loss" in row]
    assert [row["step"] for row in logged] == [1, 10, 20, 30]
    assert [row["loss"] for row in logged] == [row["loss"] for row in fetched]


def test_figures_are_shown_once_a_second_where_steps_are_slow(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[dict[str, float]] = []
    monkeypatch.setattr(loop, "SHOWN_SECONDS", 0.0)
    run.train(listener=lambda event: shown.append(getattr(event, "figures", {})))
    losses = {figures["loss"] for figures in shown if "loss" in figures}
    assert len(losses) > 20


def test_the_log_holds_the_norm_of_the_gradient_before_it_is_clipped(run: Run) -> None:
    recipe = run.recipe(optimizer={"clip_norm": 1e-3})
    step, batch = make_step(recipe), make_batch(recipe)
    twin = make_step(recipe)
    twin.learn(batch, 0, twin.statistics.copy(), 0.1)
    norm = sum(float(p.grad.square().sum()) for p in twin.method.module.parameters() if p.grad is not None) ** 0.5
    assert norm > 0.1
    assert step(batch, 0, 0.0, 0.0).figures()["gradient_norm"] == pytest.approx(norm, rel=1e-5)
    _, result = run.train(optimizer={"clip_norm": 1e-3})
    assert result.history[0]["gradient_norm"] == pytest.approx(norm, rel=1e-5)


@pytest.mark.parametrize("images", [None, 4])
def test_statistics_are_copied_once_a_step_also_under_sam(
    run: Run, monkeypatch: pytest.MonkeyPatch, images: int | None
) -> None:
    copies: list[int] = []
    copy = Statistics.copy

    def watched(statistics: Statistics) -> list[Tensor]:
        copies.append(1)
        return copy(statistics)

    monkeypatch.setattr(Statistics, "copy", watched)
    sharp = {"name": "sgd", "sam_rho": 0.05} | ({} if images is None else {"sam_images": images})
    recipe = run.recipe(optimizer=sharp)
    make_step(recipe)(make_batch(recipe), 0, 0.1, 0.1)
    assert len(copies) == 1


def test_a_checkpoints_names_are_those_of_earlier_versions(run: Run) -> None:
    run.train()
    saved = load_newest(run.folder / "checkpoints", ignore)
    assert saved is not None
    names = set(saved.parts)
    assert {name.partition("/")[0] for name in names} == {"model", "average", "optimizer"}
    for name in dict(build(CONFIG, seed=1).named_parameters()):
        assert {f"model/network.{name}", f"average/network.{name}", f"optimizer/network.{name}/exp_avg"} <= names


@pytest.mark.parametrize("lost", ["model/network.head.bias", "average/network.head.bias"])
def test_a_checkpoint_that_lacks_something_is_refused_in_one_line(run: Run, lost: str) -> None:
    run.train()
    newest = sorted((run.folder / "checkpoints").glob("step-*"))[-1]
    state = json.loads((newest / "state.json").read_text())
    del state["parts"][lost]
    (newest / "state.json").write_text(json.dumps(state))
    with pytest.raises(TrainingError, match=r"of another network or method: 'network.head.bias' is in only one"):
        run.train(resume=True)


def test_what_no_part_of_the_run_keeps_is_refused_in_one_line(run: Run) -> None:
    run.train()
    saved = load_newest(run.folder / "checkpoints", ignore)
    assert saved is not None
    parts = make_step(run.recipe()).states()
    unpack(saved, parts)
    del parts["average"]
    with pytest.raises(
        TrainingError, match=r"another network or method: 'average/network.* is in only one of the two\.$"
    ):
        unpack(saved, parts)


def test_the_older_spelling_of_masked_patches_means_the_same() -> None:
    older = build_recipe({"objective": {"name": "masked-patches", "masked_share": 0.4, "head_bias": -1.0}}, "older")
    newer = build_recipe(
        {"method": {"name": "masked-patches", "share": 0.4}, "objective": {"head_bias": -1.0}}, "older"
    )
    assert older == newer.model_copy(update={"name": older.name})
    assert method_of(older) is MaskedPatches
    resolved = build_recipe({"objective": {"name": "softmax", "masked_share": 0.5}}, "written by an earlier version")
    assert method_of(resolved) is Supervised
    assert method_of(load_recipe("scratch", ["objective.name=masked-patches"])) is MaskedPatches


def test_a_recipe_is_written_with_its_methods_own_settings(tmp_path: Path) -> None:
    recipe = load_recipe("masked-patches", ["method.share=0.25"])
    (tmp_path / "again.toml").write_text(recipe.to_toml())
    again = load_recipe(tmp_path / "again.toml")
    assert isinstance(again.method, MaskedPatchesSettings)
    assert again.method.share == 0.25
    with pytest.raises(RecipeError, match=r"impossible 'method.share' \(1.5\)"):
        load_recipe("masked-patches", ["method.share=1.5"])
    with pytest.raises(RecipeError, match="'method.share' belongs to the method 'masked-patches'"):
        load_recipe("scratch", ["method.share=0.5"])


def test_what_is_no_plain_network_is_not_sharded(run: Run) -> None:
    recipe = run.recipe(method={"name": "masked-patches"}, compute={"sharding": "full"})
    with pytest.raises(RecipeError, match="The method 'masked-patches' needs whole weights in each process"):
        Engine(build_method(build(CONFIG, seed=0), recipe, SINGLE_LABEL), recipe)


@every_case("parts", [1, 2, 3, 5])
def test_a_cut_batch_has_every_image_of_every_source_once(parts: int) -> None:
    def images(count: int) -> Tensor:
        return torch.arange(count, dtype=torch.uint8).view(-1, 1, 1, 1).expand(count, 3, 2, 2)

    other = Batch(images(7), torch.full((7,), -1), torch.arange(7), more=(images(7),))
    batch = Batch(
        images(6), torch.arange(6), torch.arange(6), 5, 40, partner=True, more=(images(6),), extra={"other": other}
    )
    cut = list(batch.cut(-(-5 // parts)))
    assert [len(part) for part in cut] == [len(rows) for rows in np.array_split(range(5), len(cut))] or parts == 3
    assert sum(len(part) for part in cut) == len(batch) == 5
    assert [part.first for part in cut] == [5 + sum(len(before) for before in cut[:n]) for n in range(len(cut))]
    assert {part.total for part in cut} == {40}
    assert torch.equal(torch.cat([part.images[1:] for part in cut]), batch.images[1:])
    assert torch.equal(torch.cat([part.more[0][1:] for part in cut]), batch.more[0][1:])
    assert torch.equal(torch.cat([part.extra["other"].images for part in cut]), other.images)
    assert torch.equal(torch.cat([part.extra["other"].more[0] for part in cut]), other.more[0])


def test_a_stop_is_heard_between_the_batches_of_a_validation(run: Run, other_run: Run) -> None:
    """Signals that come while a network is validated; the run continues with the validation made again."""
    asked: list[bool] = []

    def validating(target: Run, *, stopping: bool, resume: bool = False) -> None:
        data, recipe = open_digits(), target.recipe()
        model = build(CONFIG, seed=1)
        batches = training_batches(data.splits["train"], recipe, image_size=(8, 8), augmentation=data.augmentation)

        def validate(network: Model, listener: Listener, stop: Callable[[], bool]) -> dict[str, float] | None:
            classifier = Classifier(network, PHOTOS.with_size(8), data.class_names)
            if stopping:
                os.kill(os.getpid(), signal.SIGTERM)
            try:
                rows, _ = predict_probabilities(classifier, data.splits["validation"], listener=listener, stop=stop)
            except Stopped:
                asked.append(True)
                return None
            return {"validation/accuracy": float(rows.max())}

        train(
            model,
            batches,
            recipe=recipe,
            normalize=PHOTOS.normalize,
            folder=target.folder,
            validate=validate,
            resume=resume,
        )

    validating(run, stopping=False)
    with pytest.raises(TrainingInterrupted, match="saved after step 15 of 30"):
        validating(other_run, stopping=True)
    assert asked == [True]
    validating(other_run, stopping=False, resume=True)
    assert run.bits() == other_run.bits()


def test_alone_a_process_asks_nobody_else() -> None:
    request = StopRequest()
    assert not request.received()
    request.signal = signal.SIGTERM
    assert request.received()
