"""What our speeds are set beside is the same network in another library."""

import pytest
import torch

import vitral
from tests.models.test_contract import images, make
from tests.peers.compare import gap
from vitral.errors import WeightsError
from vitral.evaluation.peers import peers
from vitral.events import ignore
from vitral.images.preprocessing import PHOTOS
from vitral.inference.torch_predictor import TorchPredictor

timm = pytest.importorskip("timm")
pytest.importorskip("transformers")
pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore")]


def classifier_of(name: str) -> vitral.Classifier:
    model = make(name)
    return vitral.Classifier(model, PHOTOS.with_size(model.image_size))


def test_transformers_computes_the_classifiers_own_logits() -> None:
    classifier = classifier_of("deit")
    compute = {(name, precision): make for name, precision, make in peers(classifier, ["fp32", "bf16"], compile=False)}
    batch = images(classifier.model, 3)
    exact = TorchPredictor(classifier.model).logits(batch)
    assert gap(compute["transformers eager", "fp32"]()(batch), exact) < 1e-4
    assert 0 < gap(compute["transformers eager", "bf16"]()(batch), exact) < 0.15


def test_timms_network_is_as_large(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    create = timm.create_model

    def note(*given: object, **settings: object) -> torch.nn.Module:
        made.append(create(*given, **settings))
        return made[-1]

    monkeypatch.setattr(timm, "create_model", note)
    classifier = classifier_of("deit")
    for name, _, make_it in peers(classifier, ["fp32"], compile=False):
        if name == "timm eager":
            assert make_it()(images(classifier.model, 2)).shape == (2, classifier.model.num_classes)
    (network,) = made
    ours = sum(value.numel() for value in classifier.model.parameters())
    assert sum(value.numel() for value in network.parameters()) == ours


def test_what_a_peer_does_not_know_is_left_out_and_said() -> None:
    classifier = classifier_of("experts")
    (make_it,) = (make for name, _, make in peers(classifier, ["fp32"], compile=False) if name.startswith("trans"))
    with pytest.raises(WeightsError, match="transformers"):
        make_it()
    found = vitral.bench(classifier, batch_sizes=(1,), rounds=1, listener=ignore)
    assert any(name.startswith("transformers") for name in found.missing)
    assert {row.name for row in found.speeds} >= {"vitral torch"}
