"""Several processes of one job: the arithmetic of one, checkpoints that fit any number, and what a lost process costs (R11)."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import Record
from tests.forks import Fork, job, type_command
from tests.processes import agent, ranks_run
from vitral.paths import RECIPE_FILE

pytestmark = pytest.mark.long

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
TIGHT = 1e-5
ORTHOGONAL = 5e-3  # for Muon computes in bfloat16 what it makes orthogonal


def run(folder: Path, ranks: int = 1, **changes: Any) -> dict[int, dict[str, float]]:  # noqa: ANN401
    for done in job(ranks, ranks_run.main, folder, changes):
        assert done.returncode == 0, done.stderr[-3000:]
    return history(folder)


def history(folder: Path) -> dict[int, dict[str, float]]:
    rows: dict[int, dict[str, float]] = {}
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        rows.setdefault(row["step"], {}).update(row)
    return rows


def close(one: dict[int, dict[str, float]], other: dict[int, dict[str, float]], tolerance: float = TIGHT) -> bool:
    return one.keys() == other.keys() and all(
        abs(one[step][name] - other[step][name]) <= tolerance * max(1.0, abs(one[step][name]))
        for step in one
        for name in one[step]
    )


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return torch.load(folder / "final.pt", weights_only=True)


def same_bits(one: Path, other: Path) -> bool:
    first, second = weights(one), weights(other)
    logs = (one / "metrics.jsonl").read_bytes() == (other / "metrics.jsonl").read_bytes()
    return logs and first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("alone") / "run"
    run(folder)
    return folder


@pytest.mark.parametrize(
    ("ranks", "changes"),
    [
        (2, {}),
        (4, {}),
        (2, {"compute": {"sharding": "hybrid"}}),
        (2, {"compute": {"accumulation": 4, "sharding": "full", "checkpointing": True}}),
        (1, {"compute": {"accumulation": 4}}),
        (1, {"compute": {"checkpointing": True}}),
    ],
)
def test_however_the_work_is_laid_out_the_loss_curve_is_one(
    alone: Path, tmp_path: Path, ranks: int, changes: dict[str, Any]
) -> None:
    assert close(history(alone), run(tmp_path / "run", ranks, **changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"mixing": {"mixup": 0.8, "cutmix": 1.0}, "augmentation": {"crop": "none", "erasing": 0.5, "repeats": 2}},
        {"optimizer": {"name": "lamb", "lr": 0.01, "layer_decay": 0.7, "head_weight_decay": 1.0, "weight_decay": 0.1}},
        {"adaptation": {"method": "lora", "lora_rank": 2}},
        {"optimizer": {"name": "sgd", "lr": 0.1, "sam_rho": 0.2, "sam_images": 4, "weight_decay": 0.01}},
        {"optimizer": {"name": "sgd", "lr": 0.1, "sam_rho": 0.2, "sam_images": 4, "gsam_alpha": 0.4}},
        {"optimizer": {"name": "sgd", "lr": 0.1, "sam_rho": 0.2, "gsam_alpha": 0.4}},
        {"objective": {"name": "masked-patches"}, "regularization": {}},
    ],
    ids=["mixing", "lamb", "lora", "sharp", "gap", "gap-of-all", "masked"],
)
def test_two_processes_learn_what_one_learns(tmp_path: Path, changes: dict[str, Any]) -> None:
    masked = "objective" in changes
    one, two = run(tmp_path / "one", 1, **changes), run(tmp_path / "two", 2, **changes)
    if masked:  # which patches are hidden is drawn for each process's own images
        for row in (*one.values(), *two.values()):
            row.pop("gradient_norm", None)
    assert close(one, two, 0.2 if masked else TIGHT)


@pytest.mark.parametrize("how", [{"method": "probe"}, {"method": "lora"}, {"frozen_blocks": 1}])
def test_two_processes_adapt_a_head_of_which_a_part_is_in_closed_form(tmp_path: Path, how: dict[str, Any]) -> None:
    small = {"steps": 3, "batch_size": 4, "regularization": {}, "schedule": {"warmup_steps": 1}}
    rows = run(tmp_path / "run", 2, regions=True, adaptation=how, objective={"name": "task"}, **small)
    assert all(math.isfinite(rows[step]["loss"]) for step in (1, 3))


def test_experts_of_their_own_compute_the_same(tmp_path: Path) -> None:
    sgd = {"optimizer": {"name": "sgd", "lr": 0.1}}
    copied = run(tmp_path / "copied", 2, experts=4, **sgd)
    own = run(tmp_path / "own", 2, experts=4, compute={"expert_parallel": True}, **sgd)
    assert close(copied, own)
    one, other = weights(tmp_path / "copied"), weights(tmp_path / "own")
    assert one.keys() == other.keys()
    assert all(torch.allclose(one[name], other[name], atol=1e-5) for name in one)
    names = {path.name for path in (tmp_path / "own" / "checkpoints" / "last").glob("*.safetensors")}
    assert names == {"tensors-00000-00000.safetensors", "tensors-00001-00000.safetensors"}


def test_momentum_in_bfloat16_is_shared_out_and_put_together_again(tmp_path: Path) -> None:
    half: dict[str, Any] = {"optimizer": {"name": "sgd", "lr": 0.01, "momentum_dtype": "bfloat16"}}
    run(tmp_path / "alone", 1, steps=10, **half)
    run(tmp_path / "shared", 2, steps=10, **half, compute={"sharding": "full"})
    assert close(run(tmp_path / "alone", 1, **half), run(tmp_path / "shared", 1, **half), 1e-3)


def test_matrices_made_orthogonal_are_shared_out_and_put_together_again(tmp_path: Path) -> None:
    muon: dict[str, Any] = {"optimizer": {"name": "muon", "lr": 0.01, "weight_decay": 0.1}}
    alone = run(tmp_path / "alone", 1, steps=10, **muon)
    assert close(alone, run(tmp_path / "copied", 2, steps=10, **muon), ORTHOGONAL)
    assert close(alone, run(tmp_path / "shared", 2, steps=10, **muon, compute={"sharding": "full"}), ORTHOGONAL)
    assert close(run(tmp_path / "alone", 1, **muon), run(tmp_path / "shared", 1, **muon), ORTHOGONAL)


@pytest.fixture(scope="module")
def parted_alone(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, float]]:
    """A run of ten steps made longer, by one process throughout."""
    folder = tmp_path_factory.mktemp("parted") / "run"
    run(folder, 1, steps=10)
    return run(folder)


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2)])
def test_a_checkpoint_of_shares_is_read_by_another_number_of_processes(
    parted_alone: dict[int, dict[str, float]], tmp_path: Path, before: int, after: int
) -> None:
    sharded: dict[str, Any] = {"compute": {"sharding": "full"}}
    run(tmp_path / "run", before, steps=10, **sharded)
    assert close(parted_alone, run(tmp_path / "run", after, **sharded))


def test_a_checkpoint_of_experts_is_read_by_one_process(tmp_path: Path) -> None:
    own: dict[str, Any] = {"compute": {"expert_parallel": True}, "experts": 4}
    run(tmp_path / "run", 2, steps=10, **own)
    run(tmp_path / "copied", 2, steps=10, experts=4)
    # Four images are routed together, which a process of its own does too.
    assert close(run(tmp_path / "copied", 1, experts=4), run(tmp_path / "run", 1, **own))


def start(folder: Path, *, restarts: int = 0, **changes: Any) -> Fork:  # noqa: ANN401
    return Fork(agent.main, restarts, ranks_run.main, folder, changes)


def ranks_of(process: Fork) -> list[int]:
    children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=False)
    return [int(pid) for pid in children.stdout.split()]


def kill_some_rank(tmp_path: Path, number: int) -> None:
    """Kill a process of the job at an instant that differs from case to case, and let the agent bring it back."""
    folder = tmp_path / f"case-{number}"
    process = start(folder, restarts=10, wait=0.02)
    while not (folder / RECIPE_FILE).exists():
        time.sleep(0.05)
    time.sleep(0.03 * number)
    pids = ranks_of(process)
    assert pids or number > 1, "the job ended before a process could be killed"
    if pids:
        os.kill(pids[number % len(pids)], signal.SIGKILL)
    done = process.ended()
    assert done.returncode == 0, done.stderr[-3000:]


def check_kills(tmp_path: Path, count: int) -> None:
    run(tmp_path / "whole", 2)
    for number in range(count):
        kill_some_rank(tmp_path, number)
        assert same_bits(tmp_path / "whole", tmp_path / f"case-{number}")


@pytest.mark.requirement(id="R11")
def test_two_kills_of_a_process(tmp_path: Path) -> None:
    check_kills(tmp_path, 2)


@pytest.mark.requirement(id="R11")
@pytest.mark.slow
def test_twenty_kills_of_a_process(tmp_path: Path, record_counts: Record) -> None:
    check_kills(tmp_path, 20)
    record_counts("R11", {"kills": 20, "equal": 20})


@pytest.mark.requirement(id="R11")
def test_the_others_end_when_a_process_is_lost(tmp_path: Path) -> None:
    process = start(tmp_path / "run", wait=0.02)
    while not (tmp_path / "run" / "checkpoints").exists():
        time.sleep(0.05)
    os.kill(ranks_of(process)[1], signal.SIGKILL)
    assert process.ended().returncode != 0


def test_a_termination_saves_in_every_process(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    run(whole, 2, compute={"sharding": "full"})
    process = start(tmp_path / "run", wait=0.05, compute={"sharding": "full"})
    while not (tmp_path / "run" / "checkpoints" / "last").exists():
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGTERM)  # of the agent alone, as a scheduler does
    assert "saved after step" in process.ended().stderr
    run(tmp_path / "run", 2, compute={"sharding": "full"})
    assert same_bits(whole, tmp_path / "run")


def finetune(folder: Path, ranks: int, *options: str) -> dict[int, dict[str, float]]:
    arguments = ["finetune", "--data", "digits", "--from", "vit-mu4", "--out", str(folder)]
    changes = ["steps=20", "image_size=16", "precision=fp32", "batch_size=32", "checkpoint.every_steps=10"]
    changes += ["optimizer.name=adamw", "optimizer.lr=1e-3"]  # Muon's products in bfloat16 magnify how sums are ordered
    settings = [part for change in changes for part in ("--set", change)]
    line = [*arguments, *settings, *options]
    if ranks == 1:
        done = type_command(Path(), *line)
    else:
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
        target = [*launcher, "-m", "vitral", *line]
        done = subprocess.run(target, env=ENVIRONMENT, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("of 359 test photos right") == 1
    return history(folder)


def test_finetune_under_torchrun_is_finetune(tmp_path: Path) -> None:
    one, two = finetune(tmp_path / "one", 1), finetune(tmp_path / "two", 2)
    assert close(one, two)
    scores = [json.loads((tmp_path / name / "evaluation.json").read_text()) for name in ("one", "two")]
    assert scores[0]["num_examples"] == scores[1]["num_examples"] == 359
    assert sum(scores[1]["support"]) == 359
    assert abs(scores[0]["nll"] - scores[1]["nll"]) < 1e-4
    assert (tmp_path / "two" / "report.html").is_file()
