"""Every runtime gives the network's answers: in float32 to its rounding, in bf16 near them; and the network stays as it is."""

import copy
import gc
import os
import pickle
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
import torch

import vitral
from tests.cases import every_case
from tests.forks import Fork
from tests.models.test_contract import CONFIGS, images, make
from vitral.errors import ModelError
from vitral.events import ignore
from vitral.inference import engines, runtimes
from vitral.inference.choice import predictor_of
from vitral.inference.engine_predictor import EnginePredictor
from vitral.inference.engines import Engine
from vitral.inference.packed import PackedLinear, pack
from vitral.inference.torch_predictor import TorchPredictor, copy_in
from vitral.models.layers import HAS_FUSED_BF16
from vitral.models.model import Model

NEEDS = {
    engine: pytest.mark.skipif(not engines.is_installed(engine), reason=f"needs the extra '{engine}'")
    for engine in engines.EXTRAS
}
of_extras = pytest.mark.parametrize("engine", [pytest.param(engine, marks=NEEDS[engine]) for engine in NEEDS])
AT_ONCE: tuple[Engine, ...] = ("torch", "packed")
PACKS_BF16 = pytest.mark.skipif(not HAS_FUSED_BF16, reason="this CPU has no products in bf16 from packed weights")
in_bf16 = pytest.mark.parametrize("engine", ["torch", pytest.param("packed", marks=PACKS_BF16)])


def furthest(model: Model, engine: Engine, precision: engines.Precision) -> float:
    """Return how far logits and features of a few images are from the network's own, in units of their deviation."""
    batch = images(model, 3)
    exact, predictor = TorchPredictor(model), EnginePredictor(model, engine, precision)
    gaps = []
    for answer, own in (
        (predictor.logits(batch), exact.logits(batch)),
        (predictor.features(batch), exact.features(batch)),
    ):
        assert answer.dtype == torch.float32
        assert answer.shape == own.shape
        gaps.append(float((answer - own).abs().max() / own.std()))
    return max(gaps)


@every_case("engine", AT_ONCE)
@every_case("name", CONFIGS)
def test_fp32_is_the_network_to_its_rounding(name: str, engine: Engine) -> None:
    assert furthest(make(name), engine, "fp32") < 2e-5


@in_bf16
@every_case("name", CONFIGS)
def test_bf16_is_near_and_not_the_same(name: str, engine: Engine) -> None:
    if "experts" in name:
        pytest.skip("a rounding may send a token to another expert")
    assert 0 < furthest(make(name), engine, "bf16") < 0.15


def test_a_cpu_that_multiplies_no_packed_bf16_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtimes, "HAS_FUSED_BF16", False)
    model = make("deit")
    with pytest.raises(ModelError, match=r"bf16 .*AVX512.*engine 'torch', or fp32\.$"):
        EnginePredictor(model, "packed", "bf16").logits(images(model))


@of_extras
@pytest.mark.long
@pytest.mark.parametrize("name", ["deit", "hybrid", "clip", "resnet-basic", "cvt"])
def test_another_runtime_gives_the_networks_answers(name: str, engine: Engine) -> None:
    assert furthest(make(name), engine, "fp32") < 1e-4


@NEEDS["openvino"]
def test_openvino_computes_in_bf16_where_that_is_asked_for() -> None:
    assert 0 < furthest(make("deit"), "openvino", "bf16") < 0.15


@NEEDS["onnxruntime"]
def test_onnx_runtime_refuses_bf16_in_one_line() -> None:
    model = make("deit")
    with pytest.raises(ModelError, match=r"'onnxruntime' computes in fp32"):
        EnginePredictor(model, "onnxruntime", "bf16").logits(images(model))
    with pytest.raises(ModelError, match=r"computes in fp32"):  # before any image is read
        predictor_of(model, "onnxruntime", "bf16", ignore)


@of_extras
def test_another_runtime_refuses_experts_in_one_line(engine: Engine) -> None:
    model = make("experts")
    with pytest.raises(ModelError, match=r"it sends each token to experts of its own; take another engine\.$"):
        EnginePredictor(model, engine, "fp32").logits(images(model))


@of_extras
def test_another_runtime_takes_batches_of_any_size(engine: Engine) -> None:
    model = make("deit")
    predictor = EnginePredictor(model, engine, "fp32")
    for count in (1, 2, 7):
        batch, own = images(model, count), TorchPredictor(model)
        torch.testing.assert_close(predictor.logits(batch), own.logits(batch), rtol=0, atol=1e-4)
        torch.testing.assert_close(predictor.features(batch), own.features(batch), rtol=0, atol=1e-4)


def hear_ctrl_c_after_openvino() -> int:
    """Predict by two networks in OpenVINO, let them go, and press Ctrl-C."""
    predictors = [EnginePredictor(make("deit"), "openvino", "fp32") for _ in range(2)]
    for predictor in predictors:
        predictor.logits(images(make("deit")))
    del predictor
    while predictors:
        del predictors[0]
        gc.collect()
    heard: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    os.kill(os.getpid(), signal.SIGINT)
    return 0 if heard else 1


@pytest.mark.long
@NEEDS["openvino"]
def test_ctrl_c_is_heard_after_openvino_has_gone() -> None:
    ended = Fork(hear_ctrl_c_after_openvino).ended()
    assert ended.returncode == 0, ended.stderr


@pytest.mark.slow  # it compiles for half a minute
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on a CPU")
def test_what_torch_compiles_gives_the_networks_answers() -> None:
    model = vitral.load("vit-mu4").model
    torch.nn.init.normal_(model.head.weight, generator=torch.Generator().manual_seed(0))
    assert furthest(model, "compiled", "fp32") < 2e-5


@in_bf16
def test_the_network_itself_stays_as_it_is(engine: Engine) -> None:
    model = make("hybrid").train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    kinds = [type(module) for module in model.modules()]
    EnginePredictor(model, engine, "bf16").logits(images(model))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [type(module) for module in model.modules()] == kinds
    assert all(module.training for module in model.modules())
    assert all(parameter.requires_grad for parameter in model.parameters())


@every_case("change", ["a step", "new values", "another head", "another size"])
def test_a_change_of_the_network_takes_effect_with_the_next_call(change: str) -> None:
    model = make("deit")
    predictor = EnginePredictor(model, "packed", "fp32")
    predictor.logits(images(model))
    with torch.no_grad():
        if change == "a step":
            for parameter in model.parameters():
                parameter.mul_(1.1)
        elif change == "new values":
            model.head.weight.data = model.head.weight.data + 1
        elif change == "another head":
            model.replace_head(5)
            model.head.weight.normal_()
        else:
            model.resize(64)
    batch = images(model)
    torch.testing.assert_close(predictor.logits(batch), TorchPredictor(model).logits(batch), rtol=1e-4, atol=1e-4)


@in_bf16
def test_a_runtime_is_made_once(engine: Engine) -> None:
    model = make("deit")
    predictor = EnginePredictor(model, engine, "bf16")
    first = predictor.logits(images(model))
    made = predictor._made
    assert torch.equal(predictor.logits(images(model)), first)
    assert predictor._made is made


@in_bf16
def test_a_predictor_that_has_predicted_can_be_pickled(engine: Engine) -> None:
    model = make("deit")
    predictor = EnginePredictor(model, engine, "bf16")
    answer = predictor.logits(images(model))
    for again in (pickle.loads(pickle.dumps(predictor)), copy.deepcopy(predictor)):
        assert torch.equal(again.logits(images(model)), answer)
    assert predictor._made is not None


def test_weights_that_are_not_cast_are_not_copied() -> None:
    model = make("deit")
    copied = copy_in(model, torch.float32)
    assert copied.head.weight.data_ptr() == model.head.weight.data_ptr()
    assert copy_in(model, torch.bfloat16).head.weight.dtype == torch.bfloat16


def test_batch_norms_keep_their_digits() -> None:
    copied = copy_in(make("resnet-basic"), torch.bfloat16)
    norms = [module for module in copied.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    assert norms
    assert all(norm.running_var is not None and norm.running_var.dtype == torch.float32 for norm in norms)


def test_nearly_every_linear_layer_of_a_vit_is_packed() -> None:
    layers = [
        module for module in pack(copy_in(make("deit"), torch.float32)).modules() if hasattr(module, "in_features")
    ]
    left = [layer for layer in layers if not isinstance(layer, PackedLinear)]
    assert len(left) == 1, "all but the projections of the last block, of whose queries only one is read"


def test_explanations_are_the_networks_own() -> None:
    model = make("deit")
    fast, own, batch = EnginePredictor(model, "packed", "bf16"), TorchPredictor(model), images(model)
    assert torch.equal(fast.attention(batch).logits, own.attention(batch).logits)
    assert fast.exact.describe() == own.describe() == fast.describe()
    assert (fast.has_attention, fast.no_rollout) == (own.has_attention, own.no_rollout)
    assert (own.exact, own.computed_by, fast.computed_by) == (own, "torch in fp32", "packed in bf16")


def test_images_of_another_size_are_refused_in_one_line() -> None:
    model = make("deit")
    for engine in (engine for engine in get_args(Engine) if engine != "compiled" and engines.is_installed(engine)):
        with pytest.raises(ModelError):
            EnginePredictor(model, engine, "fp32").logits(torch.zeros(1, 3, 40, 40))


def test_a_runtime_that_fails_is_named_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(network: Model, precision: engines.Precision) -> runtimes.Compute:
        raise RuntimeError("no such\nkernel")

    monkeypatch.setitem(runtimes.RUNTIMES, "packed", broken)
    model = make("deit")
    with pytest.raises(ModelError, match=r"^packed in bf16 .*ViT.* \(no such kernel\)"):
        EnginePredictor(model, "packed", "bf16").logits(images(model))


def test_openvino_reports_no_use_of_it() -> None:
    pytest.importorskip("openvino")
    line = "from vitral.inference.engines import openvino_core; openvino_core(); import sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True).stdout.split()
    assert "openvino.tools.ovc.telemetry_stub" in loaded
    assert not [name for name in loaded if name.startswith("openvino_telemetry.")]


def test_onnxruntime_reports_no_use_of_it(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    line = "from vitral.inference.engines import onnxruntime_module as found; found().SessionOptions()"
    silencing = ("CI", "ORT_DISABLE_TELEMETRY", "ORT_RUNNING_UNIT_TESTS", "XDG_CACHE_HOME")
    environment = {name: value for name, value in os.environ.items() if name not in silencing}
    subprocess.run([sys.executable, "-c", line], env=environment | {"HOME": str(tmp_path)}, check=True)
    assert not [
        path for path in tmp_path.rglob("*") if path.is_file()
    ]  # such as the number by which it knows a machine
