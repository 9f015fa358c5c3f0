"""Features of many images are computed by the engine that is fastest here, those of a few by the network itself."""

import contextlib
import math
from pathlib import Path

import pytest
import torch

from tests.models.test_contract import images, make
from vitral.classifier.classifier import Classifier
from vitral.data.generated import open_digits
from vitral.data.source import Source
from vitral.errors import ModelError
from vitral.evaluation import feature_engine
from vitral.evaluation.baselines import Describer, extract_features
from vitral.evaluation.feature_engine import Context, feature_column
from vitral.images.preprocessing import Preprocessing
from vitral.inference import choice
from vitral.inference.choice import predictor_in
from vitral.inference.engine_predictor import EnginePredictor
from vitral.inference.engines import Computation
from vitral.inference.int8 import HAS_INT8
from vitral.inference.packed import HAS_PACKING
from vitral.inference.predictor import Predictor
from vitral.inference.quantization import Quantization
from vitral.inference.torch_predictor import TorchPredictor
from vitral.machine import has_int8
from vitral.models.model import Model


@pytest.fixture
def classifier() -> Classifier:
    """A small ViT."""
    model = make("deit")
    return Classifier(model, Preprocessing(image_size=model.image_size))


@pytest.fixture(scope="module")
def source() -> Source:
    """A few hundred digits."""
    return open_digits().splits["validation"]


def in_bf16() -> contextlib.AbstractContextManager[object]:
    """Return what training computes in on a CPU with bfloat16."""
    return torch.autocast("cpu", dtype=torch.bfloat16)


def engine(classifier: Classifier, source: Source, context: Context) -> EnginePredictor | None:
    """Return the engine that computes the features; None where the network itself does."""
    compute = feature_column(classifier, context).compute_for(source)
    found = getattr(compute, "__self__", None)
    assert found is None or isinstance(found, EnginePredictor)
    return found


def test_a_few_images_are_computed_by_the_network_itself(classifier: Classifier, source: Source) -> None:
    assert engine(classifier, source, contextlib.nullcontext) is None


def test_more_are_computed_exactly_from_packed_weights_which_are_not_measured(
    classifier: Classifier, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feature_engine, "PACKED_PAY", 0.0)
    monkeypatch.setattr(feature_engine, "PAYS", math.inf)
    monkeypatch.setattr(feature_engine, "measured_once", None)
    found = engine(classifier, source, in_bf16)
    assert found is not None
    assert (found.engine, found.precision) == ("packed" if HAS_PACKING else "torch", "fp32")
    batch = images(classifier.model, 4)
    torch.testing.assert_close(found.features(batch), TorchPredictor(classifier.model).features(batch))


@pytest.mark.parametrize("context", [contextlib.nullcontext, in_bf16])
def test_many_are_computed_by_what_is_fastest(
    classifier: Classifier, source: Source, monkeypatch: pytest.MonkeyPatch, context: Context
) -> None:
    monkeypatch.setattr(feature_engine, "PACKED_PAY", 0.0)
    monkeypatch.setattr(feature_engine, "PAYS", 0.0)
    found = engine(classifier, source, context)
    assert found is not None
    assert found.precision == "fp32" or context is in_bf16
    exact, _ = extract_features(classifier, source)
    plain = TorchPredictor(classifier.model).features(classifier.preprocessing(source.image(7))[None])
    torch.testing.assert_close(exact[7], plain[0], rtol=0, atol=1e-4)


@pytest.mark.skipif(not (HAS_INT8 and has_int8()), reason="this CPU does not multiply 8-bit integers")
@pytest.mark.parametrize("fastest", [True, False])
def test_integers_compute_what_may_be_rounded_where_they_are_fastest(
    classifier: Classifier, source: Source, monkeypatch: pytest.MonkeyPatch, fastest: bool
) -> None:
    def speeds(*arguments: object, **options: object) -> None:
        if not fastest:
            raise ModelError("int8 would be slower here")

    monkeypatch.setattr(feature_engine, "PACKED_PAY", 0.0)
    monkeypatch.setattr(feature_engine, "PAYS", 0.0)
    monkeypatch.setattr(feature_engine, "INTEGERS_PAY", 0.0)
    monkeypatch.setattr(feature_engine, "int8_speeds", speeds)
    found = engine(classifier, source, in_bf16)
    assert found is not None
    assert (found.precision == "int8") == fastest
    batch = images(classifier.model, 4)
    own = TorchPredictor(classifier.model).features(batch)
    assert float((found.features(batch) - own).abs().max() / own.std()) < 0.3
    exact = engine(classifier, source, contextlib.nullcontext)
    assert exact is not None
    assert exact.precision == "fp32"


def test_nothing_is_measured_twice(
    classifier: Classifier, source: Source, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tried: list[Computation] = []

    def measured(model: Model, option: Computation, quantization: Quantization | None = None) -> float:
        tried.append(option)
        return 1e-3 * len(source)  # so slow that all are tried

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(feature_engine, "PACKED_PAY", 0.0)
    monkeypatch.setattr(feature_engine, "PAYS", 0.0)
    monkeypatch.setattr(choice, "measured", measured)
    monkeypatch.setattr(feature_engine, "has_int8", lambda: True)
    engine(classifier, source, in_bf16)
    assert len(tried) > 1
    assert len(tried) == len(set(tried))


def test_a_predictor_that_is_chosen_stays(
    classifier: Classifier, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feature_engine, "PACKED_PAY", 0.0)
    monkeypatch.setattr(feature_engine, "PAYS", 0.0)
    classifier.predictor = EnginePredictor(classifier.model, "torch", "fp32")
    assert engine(classifier, source, contextlib.nullcontext) is None


def test_an_engine_is_made_once_for_the_timing_and_for_all_images(
    classifier: Classifier, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def counted(*arguments: object) -> Predictor:
        made.append(arguments)
        return predictor_in(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(feature_engine, "PACKED_PAY", 0.0)
    monkeypatch.setattr(feature_engine, "PAYS", 0.0)
    monkeypatch.setattr(feature_engine, "predictor_in", counted)
    describer = Describer.of(classifier)
    describer.image_seconds(source)
    describer.describe(source)
    assert len(made) == 1
