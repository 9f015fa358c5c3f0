"""What our speeds are set beside is the same network in another library."""

from functools import partial

import pytest
import torch
from inference_peers import peers

import vitral
from tests.models.test_contract import images, make
from tests.peers.compare import gap
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


def test_what_a_peer_does_not_know_is_left_out() -> None:
    offered = peers(classifier_of("t2t"), ["fp32"], compile=False)
    assert not [name for name, _, _ in offered if name.startswith("transformers")]
    found = vitral.bench(
        classifier_of("experts"), batch_sizes=(1,), rounds=1, peers=partial(peers, compile=False), listener=ignore
    )
    assert found.missing["transformers eager fp32"] == "transformers has no such network"
    assert {row.name for row in found.speeds} >= {"vitral torch"}


def test_transformers_says_nothing_of_its_own(capfd: pytest.CaptureFixture[str]) -> None:
    for name, _, make_it in peers(classifier_of("deit"), ["fp32"], compile=False):
        if name.startswith("transformers"):
            make_it()
    said = capfd.readouterr()
    assert not said.out + said.err
