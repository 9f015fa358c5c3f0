"""Speeds are measured in turns, against what the machine's own products allow."""

import importlib.util
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

import vitral
from tests.inference.test_merging import learned
from tests.models.test_contract import make
from vitral import machine
from vitral.classifier.folder import save
from vitral.deployment import bench as speed
from vitral.errors import ModelError
from vitral.events import Event, Message, ignore
from vitral.images.preprocessing import PHOTOS
from vitral.inference import engines, runtimes
from vitral.models.layers import HAS_FUSED_BF16
from vitral.models.model import Model


@pytest.fixture
def classifier(monkeypatch: pytest.MonkeyPatch) -> vitral.Classifier:
    """A classifier of a small network, and turns that are short."""
    monkeypatch.setattr(speed, "TURN_SECONDS", 0.01)
    monkeypatch.setattr(speed, "LIMIT_SECONDS", 0.01)
    monkeypatch.setattr(speed, "product_speed", lambda precision, seconds: 1e12)
    monkeypatch.setattr(speed, "has_native_bf16", lambda device: True)
    monkeypatch.setattr(
        speed, "is_installed", lambda engine: engine not in engines.EXTRAS
    )  # their conversions take seconds
    model = make("deit")
    return vitral.Classifier(model, PHOTOS.with_size(model.image_size))


@pytest.mark.parametrize("extras", [False, pytest.param(True, marks=pytest.mark.long)])
def test_every_contender_has_a_row_for_each_batch_size(
    classifier: vitral.Classifier, monkeypatch: pytest.MonkeyPatch, extras: bool
) -> None:
    if extras:
        monkeypatch.setattr(speed, "is_installed", engines.is_installed)
    found = vitral.bench(classifier, batch_sizes=(1, 3), rounds=2, listener=ignore)
    names = {"vitral torch", "vitral packed"}
    names |= {"vitral openvino"} if extras and importlib.util.find_spec("openvino") else set()
    wanted = {(name, precision, size) for name in names for precision in ("fp32", "bf16") for size in (1, 3)}
    if not HAS_FUSED_BF16:  # of the CPU
        wanted -= {("vitral packed", "bf16", size) for size in (1, 3)}
    if extras and importlib.util.find_spec("onnxruntime"):  # which has no bf16
        wanted |= {("vitral onnxruntime", "fp32", size) for size in (1, 3)}
    assert {(row.name, row.precision, row.batch_size) for row in found.speeds} == wanted
    assert set(found.missing) == (set() if HAS_FUSED_BF16 else {"vitral packed bf16"})
    for row in found.speeds:
        assert row.passes >= 2
        assert row.latency_ms["50"] <= row.latency_ms["90"] <= row.latency_ms["99"]
        assert row.images_per_second == pytest.approx(1e3 * row.batch_size / row.latency_ms["50"])
        assert row.share_of_limit == pytest.approx(row.images_per_second * 2e9 * found.gmacs / 1e12)
        assert row.largest_difference is not None
        assert row.same_top is not None
        if (row.name, row.precision) == ("vitral torch", "fp32"):
            assert (row.largest_difference, row.same_top) == (0, 1)
        else:
            assert 0 <= row.largest_difference < (1e-5 if row.precision == "fp32" else 0.05)
    assert any(row.largest_difference for row in found.speeds if row.precision == "bf16")
    (table,) = found.tables()
    assert all(len(row) == len(table.columns) for row in table.rows)
    assert "GMACs an image" in found.lines()[0]
    (apart,) = (line for line in found.lines() if "which is random" in line)
    assert "vitral torch in fp32 by 0 (100.0%)" in apart
    assert apart.count("vitral packed") == (2 if HAS_FUSED_BF16 else 1)


def test_what_merges_is_measured_beside_the_network(classifier: vitral.Classifier) -> None:
    classifier.model.load_state_dict(learned("deit").state_dict())
    found = vitral.bench(classifier, batch_sizes=(2,), merge=3, rounds=1, listener=ignore)
    rows = {row.name: row for row in found.speeds if row.precision == "fp32"}
    assert {"vitral torch merging 3", "vitral packed merging 3"} <= rows.keys()
    assert (rows["vitral packed merging 3"].largest_difference or 0) > 1e-4
    assert rows["vitral packed merging 3"].share_of_limit is None
    assert rows["vitral packed"].share_of_limit


def test_the_networks_of_others_take_their_turns_and_their_answers_are_not_compared(
    classifier: vitral.Classifier,
) -> None:
    asked = list[list[engines.Precision]]()

    def peers(measured: vitral.Classifier, precisions: Sequence[engines.Precision]) -> list[speed.Peer]:
        asked.append(list(precisions))
        return [("other eager", "fp32", lambda: lambda images: torch.zeros(len(images), 3))]

    found = vitral.bench(classifier, batch_sizes=(1, 2), rounds=2, peers=peers, listener=ignore)
    assert asked == [["fp32", "bf16"]]
    rows = [row for row in found.speeds if row.name == "other eager"]
    assert [(row.precision, row.largest_difference, row.same_top) for row in rows] == [("fp32", None, None)] * 2


def test_what_a_size_takes_once_is_not_timed(classifier: vitral.Classifier, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, ready = [0.0], dict[int, set[int]]()

    def slow_at_first(network: Model, precision: engines.Precision) -> runtimes.Compute:
        seen = ready[len(ready)] = set()

        def compute(images: Tensor) -> runtimes.Answers:
            clock[0] += 0.004 if len(images) in seen else 100.0
            seen.add(len(images))
            return runtimes.Answers(network(images).detach(), torch.empty(len(images), 0))

        return compute

    monkeypatch.setattr(runtimes, "RUNTIMES", dict.fromkeys(runtimes.RUNTIMES, slow_at_first))
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    found = vitral.bench(classifier, batch_sizes=(1, 2, 4), rounds=2, listener=ignore)
    assert all(row.latency_ms["99"] == pytest.approx(4) for row in found.speeds)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the system does not tell")
def test_memory_is_what_a_contender_takes(classifier: vitral.Classifier, monkeypatch: pytest.MonkeyPatch) -> None:
    def large(network: Model, precision: engines.Precision) -> runtimes.Compute:
        held = torch.ones(100 << 18)  # 100 MiB

        def compute(images: Tensor) -> runtimes.Answers:
            return runtimes.Answers(network(images).detach() + 0 * held[0], torch.empty(len(images), 0))

        return compute

    monkeypatch.setitem(runtimes.RUNTIMES, "packed", large)
    found = vitral.bench(classifier, batch_sizes=(1,), rounds=1, listener=ignore)
    memory = {row.name: row.memory_bytes for row in found.speeds if row.precision == "fp32"}
    assert memory["vitral packed"] == pytest.approx(100 << 20, rel=0.2)
    assert memory["vitral torch"] is not None
    assert memory["vitral torch"] < 50 << 20
    assert speed.MEMORY in found.lines()


def test_a_share_above_the_limit_is_said(classifier: vitral.Classifier, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not any("Above the limit" in line for line in vitral.bench(classifier, rounds=1, listener=ignore).lines())
    monkeypatch.setattr(speed, "product_speed", lambda precision, seconds: 1.0)
    (line,) = (
        line for line in vitral.bench(classifier, rounds=1, listener=ignore).lines() if "Above the limit" in line
    )
    assert f"vitral {'packed' if HAS_FUSED_BF16 else 'torch'} in bf16 at 8 (" in line


@pytest.mark.parametrize("sizes", [(1,), (1, 8)])
def test_a_network_that_answers_every_image_alike_shows_no_differences(
    classifier: vitral.Classifier, sizes: tuple[int, ...]
) -> None:
    assert not vitral.bench(classifier, batch_sizes=sizes, rounds=1, listener=ignore).alike
    with torch.no_grad():
        classifier.model.head.weight.zero_()
    found = vitral.bench(classifier, batch_sizes=sizes, rounds=1, listener=ignore)
    assert found.alike
    assert speed.ALIKE in found.lines()
    assert not any("differ from torch" in line for line in found.lines())


def test_percentiles_are_of_the_nearest_rank() -> None:
    ranked = [float(number) for number in range(1, 11)]
    assert [speed._percentile(ranked, share) for share in (50, 90, 99)] == [5, 9, 10]
    assert [speed._percentile([1.0, 2.0], share) for share in (50, 90, 99)] == [1, 2, 2]
    assert speed._percentile([3.0], 50) == 3


def test_what_cannot_compute_is_said_and_left_out(
    classifier: vitral.Classifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(network: Model, precision: engines.Precision) -> runtimes.Compute:
        def compute(images: Tensor) -> runtimes.Answers:
            raise RuntimeError("no kernel")

        return compute

    monkeypatch.setitem(runtimes.RUNTIMES, "packed", broken)
    said: list[Event] = []
    found = vitral.bench(classifier, batch_sizes=(1,), rounds=1, listener=said.append)
    assert found.missing == {"vitral packed fp32": "no kernel", "vitral packed bf16": "no kernel"}
    assert any(isinstance(event, Message) and "no kernel" in event.text for event in said)
    assert found.speeds


def test_a_network_may_be_named(classifier: vitral.Classifier, tmp_path: Path) -> None:
    folder = save(classifier, tmp_path / "mine")
    found = [vitral.bench(named, batch_sizes=(1,), rounds=1, listener=ignore) for named in (folder, str(folder))]
    assert {bench.network for bench in found} == {classifier.predictor.describe()}


def test_impossible_sizes_are_refused(classifier: vitral.Classifier) -> None:
    for sizes, rounds in (((0,), 1), ((1, 2), 0), ((), 1)):
        with pytest.raises(ModelError, match="at least one"):
            vitral.bench(classifier, batch_sizes=sizes, rounds=rounds, listener=ignore)


@pytest.mark.parametrize("size", [99_999_999_999, 10**30])
def test_a_batch_that_memory_does_not_hold_is_refused_in_one_line(classifier: vitral.Classifier, size: int) -> None:
    with pytest.raises(ModelError, match=r"batch of [\d,]+ images .*[\d,]+ GiB.* memory"):
        vitral.bench(classifier, batch_sizes=(1, size), rounds=1, listener=ignore)


def test_a_limit_is_the_best_of_several_products_of_which_the_first_is_not_timed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine, "PRODUCT_SIZE", 256)
    assert machine.product_speed(torch.float32, 0.0) > 1e8
    read = iter([0.0, 4.0, 4.0, 6.0, 6.0, 9.0])  # seconds: three products of 4, 2 and 3
    monkeypatch.setattr(time, "perf_counter", lambda: next(read))
    assert machine.product_speed(torch.float32, 0.0) == 2 * 256**3 / 2
