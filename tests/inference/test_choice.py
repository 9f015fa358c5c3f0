"""Which runtime is taken: the one that is asked for; else the fastest, measured once, and said."""

import importlib.util
import time
from importlib import metadata
from pathlib import Path
from typing import get_args

import pytest
import torch

from tests.cases import every_case
from tests.inference.test_engines import PACKS_BF16
from tests.models.test_contract import images, make
from vitral.errors import ModelError
from vitral.events import Event, Message, ignore
from vitral.inference import choice, kept_speeds
from vitral.inference.choice import fastest, predictor_of
from vitral.inference.engine_predictor import EnginePredictor
from vitral.inference.engines import EXTRAS, Computation, Engine, EngineChoice, Precision, PrecisionChoice
from vitral.inference.kept_speeds import KIND, Effort, keep_speeds, known_speeds
from vitral.inference.torch_predictor import TorchPredictor
from vitral.models.model import Model
from vitral.paths import cache

EXACT, FAST = Computation("torch", "fp32"), Computation("packed", "bf16")


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Computation]:
    """An empty cache, hardware with bf16 and without extras, and the list of what is measured, at given speeds."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(choice, "has_native_bf16", lambda device: True)
    monkeypatch.setattr(choice, "is_installed", lambda engine: engine not in EXTRAS)
    seen: list[Computation] = []

    def speed(model: Model, way: Computation) -> float:
        seen.append(way)
        return {EXACT: 4.0, FAST: 16.0}.get(way, 12.0)

    monkeypatch.setattr(choice, "measured", speed)
    return seen


def test_fp32_is_the_network_itself_and_nothing_is_measured_or_said(measured: list[Computation]) -> None:
    model, said = make("deit"), list[Event]()
    assert type(predictor_of(model, None, "fp32", said.append)) is TorchPredictor
    assert type(predictor_of(model, "torch", "fp32", said.append)) is TorchPredictor
    named = predictor_of(model, "packed", "bf16", said.append)
    assert named.computed_by == "packed in bf16"
    assert not said
    assert not measured


def test_auto_measures_once_and_says_what_it_took_every_time(measured: list[Computation]) -> None:
    model, said = make("deit"), list[Event]()
    for _ in range(2):
        taken = predictor_of(model, None, "auto", said.append)
        assert taken.computed_by == "packed in bf16"
    assert measured == [EXACT, Computation("packed", "fp32"), Computation("torch", "bf16"), FAST]
    assert len(said) == 4
    speeds, plain = (event for event in said[:2] if isinstance(event, Message))
    assert speeds.detail
    assert all(fact in speeds.text for fact in ("packed in bf16: 16 images/s", "torch in fp32 4"))
    assert not plain.detail
    assert all(fact in plain.text for fact in ("bf16", "`precision='fp32'`"))
    model.resize(64)
    predictor_of(model, None, "auto", ignore)
    assert len(measured) == 8, "another size is another question"


def test_what_is_cached_and_damaged_is_measured_anew(measured: list[Computation]) -> None:
    model = make("deit")
    for text in ("{", "[]", "{}", '{"torch in fp32": "fast"}'):
        predictor_of(model, None, "auto", ignore)
        (kept,) = cache(KIND).iterdir()
        kept.write_text(text)
        before = len(measured)
        assert predictor_of(model, None, "auto", ignore).computed_by == "packed in bf16"
        assert len(measured) == before + 4


@every_case("starved", [True, False])
def test_what_a_starved_process_measured_holds_for_an_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, starved: bool
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    effort, device, speeds, now = Effort(), torch.device("cpu"), {"torch in fp32": 2.0}, time.time()
    until = time.process_time() + 0.2
    while not starved and time.process_time() < until:
        pass
    share = 0.9 if starved else 0.0  # of a core, which no process that waits has, and every one that computes
    monkeypatch.setattr(kept_speeds, "STARVED", share)
    time.sleep(0.2)
    keep_speeds(["network"], device, speeds, effort)
    assert known_speeds(["network"], device) == speeds
    monkeypatch.setattr(time, "time", lambda: now + 4000)
    assert known_speeds(["network"], device) == ({} if starved else speeds)


def test_a_cache_that_cannot_be_written_stops_nothing(
    measured: list[Computation], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    assert predictor_of(make("deit"), None, "auto", ignore).computed_by == "packed in bf16"


def test_bf16_that_is_hardly_faster_is_not_taken() -> None:
    assert fastest({EXACT: 10.0, FAST: 11.0}) == EXACT
    assert fastest({EXACT: 10.0, FAST: 13.0}) == FAST
    assert fastest({Computation("torch", "bf16"): 1.0, FAST: 2.0}) == FAST


def test_hardware_whose_bf16_is_slow_computes_in_fp32_by_the_fastest_engine(
    measured: list[Computation], monkeypatch: pytest.MonkeyPatch
) -> None:
    speeds = {EXACT: 6.4, Computation("packed", "fp32"): 6.8, Computation("torch", "bf16"): 3.8, FAST: 4.0}
    monkeypatch.setattr(choice, "measured", lambda model, way: speeds[way])
    assert predictor_of(make("deit"), None, "auto", ignore).computed_by == "packed in fp32"


def test_hardware_without_bf16_computes_in_fp32(measured: list[Computation], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "has_native_bf16", lambda device: False)
    taken = predictor_of(make("deit"), None, "auto", ignore)
    assert {way.precision for way in measured} == {"fp32"}
    assert taken.computed_by == "packed in fp32"


@PACKS_BF16
def test_speeds_are_really_measured() -> None:
    model = make("deit")
    speeds = {way: choice.measured(model, way) for way in (EXACT, FAST)}
    assert all(speed > 0 for speed in speeds.values())


def test_where_nothing_can_be_measured_the_network_itself_is_taken_or_the_engine_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(predictor: EnginePredictor, batch: torch.Tensor) -> torch.Tensor:
        raise ModelError(f"no {predictor.computed_by}")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(choice, "has_native_bf16", lambda device: True)
    monkeypatch.setattr(EnginePredictor, "logits", broken)
    with pytest.raises(ModelError, match=r"^no packed in bf16$"):
        predictor_of(make("deit"), "packed", "auto", ignore)
    assert predictor_of(make("deit"), "auto", "auto", ignore).computed_by == "torch in fp32"
    assert predictor_of(make("deit"), "auto", "bf16", ignore).computed_by == "torch in bf16"
    assert not cache(KIND).exists(), "what could not be measured now may be the next time"


def test_what_is_done_once_for_a_number_of_images_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, ready = [0.0], set[int]()

    def logits(predictor: EnginePredictor, batch: torch.Tensor) -> torch.Tensor:
        clock[0] += 0.01 if len(batch) in ready else 100.0
        ready.add(len(batch))
        return torch.zeros(len(batch), 1)

    monkeypatch.setattr(EnginePredictor, "logits", logits)
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    assert choice.measured(make("deit"), FAST) == pytest.approx(choice.IMAGES / 0.01)


def test_every_engine_and_precision_can_be_asked_for() -> None:
    assert get_args(EngineChoice) == (*get_args(Engine), "auto")
    assert get_args(PrecisionChoice) == (*get_args(Precision), "auto")


@every_case(
    ("engine", "precision", "said"),
    [
        (
            "pakked",
            "fp32",
            "There is no engine 'pakked', only torch, packed, compiled, openvino, onnxruntime, auto. Did you mean 'packed'?",
        ),
        (None, "bf61", "There is no precision 'bf61', only fp32, bf16, int8, auto. Did you mean 'bf16'?"),
    ],
)
def test_unknown_names_are_refused(engine: str | None, precision: str, said: str) -> None:
    with pytest.raises(ModelError) as refused:
        predictor_of(make("deit"), engine, precision, ignore)  # type: ignore[arg-type]
    assert str(refused.value) == said


@every_case("engine", EXTRAS)
def test_an_engine_that_is_not_installed_names_its_extra(monkeypatch: pytest.MonkeyPatch, engine: Engine) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=rf"pip install 'vitral\[{engine}\]'"):
        predictor_of(make("deit"), engine, "auto", ignore)


def test_what_has_no_bf16_is_compared_in_fp32(measured: list[Computation], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "is_installed", lambda engine: engine == "onnxruntime")
    monkeypatch.setattr(choice, "_version", lambda name: "1")
    model = make("deit")
    predictor_of(model, "auto", "fp32", ignore)
    assert measured == [EXACT, Computation("packed", "fp32"), Computation("onnxruntime", "fp32")]
    predictor_of(model, "auto", "bf16", ignore)
    assert measured[3:] == [Computation("torch", "bf16"), FAST]
    measured.clear()
    assert predictor_of(model, "onnxruntime", "auto", ignore).computed_by == "onnxruntime in fp32"
    assert not measured, "there is nothing to choose"


def test_a_module_of_another_distribution_has_a_version_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(package: str) -> str:
        raise metadata.PackageNotFoundError(package)

    monkeypatch.setattr(metadata, "version", version)
    assert choice._version("torch") == torch.__version__


def test_a_named_engine_is_compared_in_both_precisions(measured: list[Computation]) -> None:
    model = make("deit")
    assert predictor_of(model, "packed", "auto", ignore).computed_by == "packed in bf16"
    assert measured == [Computation("packed", "fp32"), FAST]
    torch.testing.assert_close(
        predictor_of(model, "auto", "fp32", ignore).logits(images(model)), TorchPredictor(model).logits(images(model))
    )


def test_a_way_that_was_kept_on_another_cpu_cannot_be_computed_without_its_instructions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(choice, "HAS_FUSED_BF16", True)
    assert choice.can_compute(FAST, None)
    monkeypatch.setattr(choice, "HAS_FUSED_BF16", False)
    assert not choice.can_compute(FAST, None)
    assert choice.can_compute(Computation("packed", "fp32"), None)
    assert choice.can_compute(Computation("torch", "bf16"), None)
