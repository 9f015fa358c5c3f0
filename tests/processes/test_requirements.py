"""The acceptance tests of reliability that need a process or a disk of their own: R3, R5, R6, R9, R10, R12."""

import gc
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tests.conftest import Record
from tests.forks import Fork, script
from tests.processes import slow_save
from tests.processes.test_kill import digest, finish, start
from vitral.cli.main import main
from vitral.data import batch as sampling
from vitral.data.batch import batch_indices
from vitral.data.generated import open_digits
from vitral.data.loader import TrainingBatches, load_training
from vitral.data.open import open_data
from vitral.errors import ImageError
from vitral.images.preprocessing import PHOTOS
from vitral.models.families import build
from vitral.models.vit_config import ViTConfig
from vitral.seeds import generator
from vitral.training.loop import train
from vitral.training.records.checkpoints import load_newest
from vitral.training.settings.recipe import build_recipe

pytestmark = pytest.mark.long

SEED = 20201022


def check_kills_inside_a_save(folder: Path, count: int) -> dict[str, int]:
    rng = np.random.default_rng(SEED)
    for _ in range(count):
        process = Fork(slow_save.main, folder)
        while not (process.out.exists() and process.out.read_text() == "ready\n"):
            time.sleep(0.001)
        time.sleep(float(rng.uniform(0.01, 0.12)))
        process.kill()
        newest = load_newest(folder, lambda event: pytest.fail(f"unreadable: {event}"))
        if newest is not None:
            values = {float(value) for name in newest.parts for value in newest.tensor(name).unique()}  # type: ignore[no-untyped-call]
            assert values == {float(newest.state.step)}
        assert list(folder.glob(".vitral-partial-*")) == []
    return {"kills": count, "unreadable": 0, "leftovers": 0, "seed": SEED}


@pytest.mark.requirement(id="R3")
def test_kills_inside_a_save(tmp_path: Path) -> None:
    check_kills_inside_a_save(tmp_path / "checkpoints", 4)


@pytest.mark.slow
@pytest.mark.requirement(id="R3")
def test_200_kills_inside_a_save(tmp_path: Path, record_counts: Record) -> None:
    record_counts("R3", check_kills_inside_a_save(tmp_path / "checkpoints", 200))


def check_signals(tmp_path: Path, count: int) -> dict[str, int]:
    whole = tmp_path / "whole"
    seconds = finish(whole)
    rng = np.random.default_rng(SEED)
    saved = 0
    for number in range(count):
        folder = tmp_path / f"case-{number}"
        code = (signal.SIGTERM, signal.SIGINT)[number % 2]
        process = start(folder)
        time.sleep(float(rng.uniform(0.3, 1.0)) * seconds)
        if process.poll() is None:
            os.kill(process.pid, code)
        done = process.ended()
        if done.returncode == 128 + code and "saved after step" in done.stderr:
            saved += 1
        finish(folder)
        assert digest(folder) == digest(whole)
    return {"signals": count, "saved_and_said_so": saved, "equal": count, "seed": SEED}


UNHURRIED = """
import time
from vitral.training.step import stop_on_signals
with stop_on_signals():
    print("ready", flush=True)
    time.sleep(60)
    time.sleep(60)
"""


@pytest.mark.requirement(id="R5")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_the_process_at_once(number: signal.Signals) -> None:
    process = Fork(script, UNHURRIED)
    while process.poll() is None and not (process.out.exists() and process.out.read_text()):
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert process.poll() is None
    process.send_signal(number)
    assert process.ended(10).returncode == -number


@pytest.mark.slow
@pytest.mark.requirement(id="R5")
def test_signals_at_50_instants(tmp_path: Path, record_counts: Record) -> None:
    record_counts("R5", check_signals(tmp_path, 50))


def digit_batches(rank: int = 0, world: int = 1) -> TrainingBatches:
    data = open_digits()
    return TrainingBatches(
        data.splits["train"],
        batch_size=32,
        image_size=(8, 8),
        augmentation=data.augmentation,
        seed=4,
        rank=rank,
        world=world,
    )


@pytest.mark.requirement(id="R6")
def test_after_any_batch_of_an_epoch_the_next_ones_are_the_same(record_counts: Record) -> None:
    alone = [digit_batches().batch(step) for step in range(50)]
    for workers, stops in ((0, range(1, 41)), (2, (1, 2, 17, 39, 40)), (4, (3, 40))):
        for stop in stops:
            resumed = load_training(digit_batches(), first_step=stop, last_step=stop + 8, workers=workers)
            for step, batch in enumerate(resumed, stop):
                assert torch.equal(batch.images, alone[step].images)
                assert torch.equal(batch.labels, alone[step].labels)
    record_counts("R6", {"positions": 40, "batches_each": 8})


@pytest.mark.requirement(id="R6")
@pytest.mark.parametrize("world", [1, 2, 4])
def test_any_number_of_processes_sees_the_same_batch(world: int) -> None:
    whole = digit_batches().batch(11)
    parts = [digit_batches(rank, world).batch(11) for rank in range(world)]
    assert torch.equal(torch.cat([part.images for part in parts]), whole.images)
    assert torch.equal(torch.cat([part.labels for part in parts]), whole.labels)


@pytest.mark.requirement(id="R6")
def test_a_late_start_draws_the_order_of_its_own_epoch_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[str, int]] = []

    def noted(seed: int, purpose: str, counter: int) -> np.random.Generator:
        drawn.append((purpose, counter))
        return generator(seed, purpose, counter)

    monkeypatch.setattr(sampling, "generator", noted)
    batch_indices(13_000, 4096, seed=SEED, step=90_000)
    assert drawn == [("order", 28356), ("order", 28357)]


@pytest.mark.requirement(id="R9")
def test_a_thousand_files_with_five_percent_bad(tmp_path: Path, record_counts: Record) -> None:
    dirty, clean = tmp_path / "dirty", tmp_path / "clean"
    rng = np.random.default_rng(0)
    kinds = (b"", b"\xff\xd8\xff", b"GIF89a", b"<html>", b"\x89PNG\r\n\x1a\n", b"%PDF-1.4", b"RIFF\x10\0\0\0WEBP")
    bad = 0
    for number in range(1000):
        name = Path("ab"[number % 2]) / f"{number:04d}.png"
        for root in (dirty, clean):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
        if number % 20 == 7:
            (dirty / name).write_bytes(kinds[number % len(kinds)])
            bad += 1
        else:
            Image.fromarray(rng.integers(0, 256, (9, 9, 3), dtype=np.uint8)).save(dirty / name)
            shutil.copy(dirty / name, clean / name)
    with pytest.raises(ImageError, match=f"{bad} of 1,000 images cannot be read"):
        open_data(dirty, skip_bad_images=False)
    skipped = open_data(dirty)
    assert len(skipped.bad_images) == bad == 50
    for split, source in open_data(clean).splits.items():
        assert [Path(source.describe(index)).name for index in range(len(source))] == [
            Path(skipped.splits[split].describe(index)).name for index in range(len(source))
        ]
    record_counts("R9", {"files": 1000, "bad": bad, "listed": bad})


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a small disk can only be mounted by root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=False)


@pytest.mark.requirement(id="R10")
def test_a_full_disk_is_one_line_and_the_last_checkpoint_loads(
    small_disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = small_disk / "run"
    arguments = ["finetune", "--data", "digits", "--from", "vit-mu4", "--image-size", "16", "--out", str(run)]
    settings = ["steps=400", "checkpoint.every_steps=5", "checkpoint.archive_steps=5", "batch_size=8"]
    status = main([*arguments, *(part for setting in settings for part in ("--set", setting))])
    said = capsys.readouterr().err
    assert status == 1
    assert "the disk is full; free some space" in said
    assert "Traceback" not in said
    assert load_newest(run / "checkpoints", lambda event: None) is not None


CONFIG = ViTConfig(image_size=(8, 8), patch_size=(4, 4), dim=16, depth=2, mlp_dim=32, num_heads=2, num_classes=10)


def memory() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def check_memory(folder: Path, steps: int, every: int) -> dict[str, int]:
    data = open_digits()
    recipe = build_recipe(
        {
            "steps": steps,
            "batch_size": 16,
            "workers": 0,
            "averaging": {"decay": 0.9},
            "checkpoint": {"every_steps": every // 2},
            "evaluation": {"every_steps": every},
        },
        "memory",
    )
    batches = TrainingBatches(
        data.splits["train"], batch_size=16, image_size=(8, 8), augmentation=data.augmentation, seed=0
    )
    seen: list[tuple[int, int]] = []

    def validate(model: object, listener: object, stop: object) -> dict[str, float]:
        gc.collect()
        seen.append((memory(), len(os.listdir("/proc/self/fd"))))
        return {"validation/accuracy": 0.5}

    train(build(CONFIG, seed=0), batches, recipe=recipe, normalize=PHOTOS.normalize, folder=folder, validate=validate)
    warm = max(1, len(seen) // 5 - 1)  # of 2,500 steps the first 500 warm up
    growth = seen[-1][0] - seen[warm][0]
    assert growth < 50e6
    assert abs(seen[-1][1] - seen[warm][1]) <= 1
    return {"steps": steps, "growth_bytes": growth, "descriptors": seen[-1][1]}


@pytest.mark.requirement(id="R12")
def test_memory_and_descriptors_stay(tmp_path: Path) -> None:
    check_memory(tmp_path / "run", 300, every=50)


@pytest.mark.slow
@pytest.mark.requirement(id="R12")
def test_memory_and_descriptors_stay_for_2500_steps(tmp_path: Path, record_counts: Record) -> None:
    record_counts("R12", check_memory(tmp_path / "run", 2500, every=100))


@pytest.mark.requirement(id="R12")
def test_a_workers_memory_is_flat_over_ten_epochs(tmp_path: Path) -> None:
    for number in range(60):
        path = tmp_path / "photos" / "ab"[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 256, (96, 128, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(path)
    data = open_data(tmp_path / "photos")
    source = data.splits["train"]
    batches = TrainingBatches(source, batch_size=8, image_size=(64, 64), augmentation=data.augmentation, seed=0)
    epoch = len(source) // 8
    seen: list[int] = []
    for step, _ in enumerate(load_training(batches, first_step=0, last_step=10 * epoch, workers=1)):
        if step % epoch == epoch - 1:
            children = subprocess.run(["pgrep", "-P", str(os.getpid())], capture_output=True, text=True, check=False)
            pids = [int(pid) for pid in children.stdout.split()]
            sizes = [int(text.split()[1]) for pid in pids if (text := _statm(pid))]
            seen.append(max(sizes, default=0) * os.sysconf("SC_PAGE_SIZE"))
    assert seen[-1] - seen[1] < 10e6


def _statm(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/statm").read_text()
    except OSError:
        return ""


def test_every_acceptance_test_is_there_by_its_name() -> None:
    """`make R15` once selected nothing, and said that it passed."""
    texts = [path.read_text() for path in Path(__file__).parents[1].rglob("test_*.py")]
    marked = {number for text in texts for number in re.findall(r'requirement\(id="R(\d+)"\)', text)}
    assert marked == {str(number) for number in range(1, 26)}
