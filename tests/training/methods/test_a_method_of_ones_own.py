"""A method from one file, and nothing changed elsewhere, keeps every promise: the same bits after a kill, alone and shared."""

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

import vitral
from tests.cli.conftest import write_images
from tests.forks import job
from tests.processes.test_ranks import same_bits
from tests.training.conftest import CONFIG, Run
from tests.training.methods import mutual
from tests.training.methods.mutual import Mutual, Pair
from tests.training.test_loop import PoisonAt
from vitral.errors import RecipeError, TrainingError
from vitral.events import ignore
from vitral.models.families import build
from vitral.tasks.single_label import SINGLE_LABEL
from vitral.training.records.checkpoints import load_newest
from vitral.training.records.data_record import data_changes
from vitral.training.settings.recipe import load_recipe

pytestmark = pytest.mark.long

METHOD: dict[str, Any] = {"method": {"name": "mutual"}}


def train(folder: Path, ranks: int, **changes: Any) -> int:  # noqa: ANN401
    ended = job(ranks, mutual.main, folder, METHOD | changes)
    if "kill" not in changes:  # else the others may end as it pleases them, without the one that they wait for
        assert not any(done.returncode for done in ended), [done.stderr[-3000:] for done in ended]
    return min(done.returncode for done in ended)


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    newest = load_newest(folder / "checkpoints", lambda event: None)
    assert newest is not None
    return {name: newest.tensor(name) for name in newest.parts}


@pytest.mark.parametrize("ranks", [1, 2])
def test_killed_and_gone_on_with_it_ends_in_the_same_bits(tmp_path: Path, ranks: int) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert train(whole, ranks) == 0
    assert train(killed, ranks, kill=13) == -signal.SIGKILL
    assert train(killed, ranks) == 0
    assert (tmp_path / "killed-killed").exists()
    assert same_bits(whole, killed)
    one, other = tensors(whole), tensors(killed)
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    held = {"model/one.", "model/other.", "optimizer/one.", "optimizer/other.", "method/teacher/", "method/clock"}
    assert {start for start in held if any(name.startswith(start) for name in one)} == held


def test_both_networks_learn_and_the_teacher_is_delivered(run: Run) -> None:
    model, result = run.train(steps=60, averaging={}, optimizer={"lr": 0.01}, **METHOD)
    saved = tensors(run.folder)
    first = build(CONFIG, seed=1)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, saved[f"method/teacher/{name}"])
        assert not torch.equal(saved[f"model/one.{name}"], saved[f"model/other.{name}"])
    assert not torch.equal(saved["model/one.head.weight"], first.head.weight)
    assert not torch.equal(saved["method/teacher/head.weight"], saved["model/one.head.weight"])
    losses = [row["loss"] for row in result.history if "loss" in row]
    assert losses[-1] < 0.95 * losses[0]
    assert all("agreement" in row for row in result.history if "loss" in row)


def test_its_optimizers_follow_the_recipes_curve(run: Run) -> None:
    method = Mutual(build(CONFIG, seed=1), run.recipe(**METHOD), SINGLE_LABEL)
    adam, sgd = method.optimizers()
    assert isinstance(method.module, Pair)
    ours = {id(parameter) for group in (*adam.param_groups, *sgd.param_groups) for parameter in group["params"]}
    assert ours == {id(parameter) for parameter in method.module.parameters()}


def test_a_run_is_not_gone_on_with_by_another_method(run: Run) -> None:
    run.train(**METHOD)
    with pytest.raises(TrainingError, match=r"began with another 'method"):
        run.train(resume=True)


def test_a_bad_batch_moves_neither_teacher_nor_optimizers(run: Run, other_run: Run) -> None:
    bad = range(3 * 29, 3 * 30)  # each step normalises three views
    run.train(
        steps=29, normalize=PoisonAt(10**9), checkpoint={"every_steps": 29}, schedule={"decay": "constant"}, **METHOD
    )
    _, result = other_run.train(
        normalize=PoisonAt(*bad), checkpoint={"every_steps": 30}, schedule={"decay": "constant"}, **METHOD
    )
    assert result.skipped == (29,)
    before, after = tensors(run.folder), tensors(other_run.folder)
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_another_unlabelled_source_is_refused_or_noted_on_a_resume(tmp_path: Path) -> None:
    for name in ("labelled", "unlabelled"):
        write_images(tmp_path / name, {"any": 8, "other": 8})
    settings = ["method.name=mutual", "method.unlabelled_batch=2", "steps=2", "batch_size=8", "workers=0"]
    asked: dict[str, Any] = {"out": tmp_path / "run", "listener": ignore}
    settings.append(f"method.unlabelled={tmp_path / 'unlabelled'}")
    vitral.pretrain(tmp_path / "labelled", model="vit-nano4", image_size=16, overrides=settings, **asked)
    before = json.loads((tmp_path / "run" / "run.json").read_text())
    assert before["further_data"]["unlabelled"]["data"] == "unlabelled"
    vitral.pretrain(resume=True, overrides=["steps=3"], **asked)
    Image.new("RGB", (40, 48)).save(tmp_path / "unlabelled" / "any" / "new.png")
    said = r"of the further source 'unlabelled', .*/any now has \d images, had \d"
    with pytest.raises(TrainingError, match=said):
        vitral.pretrain(resume=True, overrides=["steps=4"], **asked)
    assert vitral.pretrain(resume=True, overrides=["steps=4"], data_changed=True, **asked).training.steps == 4
    (change,) = data_changes(tmp_path / "run")
    assert re.match(said, change["what"][0])
    vitral.pretrain(resume=True, overrides=["steps=5"], **asked)  # once said, it need not be said again


def test_a_command_names_it_like_any_other(tmp_path: Path) -> None:
    settings = ["method.name=mutual", "method.weight=0.1", "steps=3", "batch_size=8", "workers=0"]
    result = vitral.pretrain(
        "digits", model="vit-nano4", image_size=16, out=tmp_path / "run", overrides=settings, listener=ignore
    )
    assert "weight = 0.1" in (tmp_path / "run" / "recipe.toml").read_text()
    assert result.training.steps == 3
    with pytest.raises(RecipeError, match=r"unknown key 'method.weights'.* Did you mean 'method.weight'"):
        load_recipe("scratch", ["method.name=mutual", "method.weights=0.1"])
    with pytest.raises(RecipeError, match=r"no method 'mutuals', only .*Did you mean 'mutual'"):
        load_recipe("scratch", ["method.name=mutuals"])
