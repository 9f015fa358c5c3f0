"""Checkpoints as people save them: the peer's logits from whatever form they have, or a line that names what is in the way."""

import argparse
import collections
import copy
import datetime
import functools
import json
import re
import subprocess
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import vitral
from tests.cases import every_case
from vitral.classifier.classifier import Classifier
from vitral.errors import WeightsError

timm = pytest.importorskip("timm")
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.peers

WIDTH = 192  # of the network's features
TOLERANCE = 1e-4  # of the logits' standard deviation

Weights = dict[str, Tensor]
Model = TypeVar("Model", bound=nn.Module)


def random_weights(model: Model, seed: int = 0) -> Model:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(parameter + noise * 0.1 if parameter.ndim <= 1 else noise * 0.05)
    return model.eval()


def network(classes: int, seed: int = 0) -> Any:  # a network of timm's
    made = timm.create_model("vit_tiny_patch16_224", img_size=32, depth=2, num_classes=classes)
    return random_weights(made, seed)


def linear(inputs: int, outputs: int, *, bias: bool = True) -> nn.Linear:
    return random_weights(nn.Linear(inputs, outputs, bias=bias), 5)


def below(prefix: str, weights: Mapping[str, Tensor]) -> Weights:
    return {prefix + name: tensor for name, tensor in weights.items()}


def distance(classifier: Classifier, peer: Callable[[Tensor], Tensor]) -> float:
    """Return how far the logits are from the peer's, in standard deviations of these."""
    images = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        ours, theirs = classifier(images), peer(images)
    assert ours.shape == theirs.shape
    return float((ours - theirs).abs().max() / theirs.std())


FIVE, OTHER = network(5), network(5, seed=3)
GOOD, BAD = FIVE.state_dict(), OTHER.state_dict()
ITSELF: dict[str, Any] = {"state_dict": GOOD}
ITSELF["me"] = ITSELF
STATE = {"state": {0: {"exp_avg": torch.zeros(3)}}, "param_groups": [{"lr": 0.1}]}

FORMS: dict[str, dict[str, Any]] = {
    "the tutorial's": {"epoch": 3, "model_state_dict": GOOD, "optimizer_state_dict": STATE, "loss": 0.3},
    **{name: {"epoch": 3, name: GOOD, "optimizer": STATE} for name in ("net", "weights", "network", "ema", "params")},
    "a name of one's own": {"the_best.so_far": GOOD, "optim": {"a": torch.zeros(9, 9)}},
    "averages before the rest": {"model": BAD, "model_ema": GOOD},
    "averages by another name": {"state_dict": BAD, "ema_state_dict": GOOD},
    "averages of timm": {"state_dict": BAD, "state_dict_ema": GOOD},
    "averages of Lightning": {"state_dict": below("net.", GOOD), "current_model_state": below("net.", BAD)},
    "averages in one dict": {**below("model.", BAD), **below("model_ema.module.", GOOD)},
    "the same twice": {"last": GOOD, "best": copy.deepcopy(GOOD)},
    "itself within": ITSELF,
    **{
        prefix: below(prefix, GOOD)
        for prefix in ("net.", "backbone.", "encoder.", "module.model.", "_orig_mod.", "a.b.c._orig_mod.module.")
    },
    "blocks compiled": {name.replace("blocks.0.", "blocks.0._orig_mod."): tensor for name, tensor in GOOD.items()},
    "averaged by torch": {"n_averaged": torch.tensor(3), **below("module.", GOOD)},
    "NumPy beside": {"state_dict": GOOD, "best": np.float64(0.9), "matrix": np.zeros((3, 3))},
    "NumPy within": {**GOOD, "best": np.float32(0.9)},
    "plain values": {
        "model": GOOD,
        "args": argparse.Namespace(data=Path("photos"), at=datetime.date(2026, 1, 1)),
        "log": collections.defaultdict(list, a=[1]),
    },
    "a name like an optimizer's": {"model_optimal": GOOD},
    "lists of others' classes": {"model": GOOD, "last_losses": collections.deque([0.3, 0.2], maxlen=2)},
    "weights of a loss": {**below("model.", GOOD), "criterion.weight": torch.ones(5)},
}


@every_case(("content", "legacy"), [(content, False) for content in FORMS.values()] + [(FORMS["NumPy beside"], True)])
def test_the_forms_of_training_scripts_are_read(content: dict[str, Any], legacy: bool, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "best.pth", _use_new_zipfile_serialization=not legacy)
    assert distance(vitral.load(tmp_path / "best.pth"), FIVE) < TOLERANCE


BESIDE: list[Any] = [
    functools.partial(torch.optim.AdamW, lr=0.1),
    types.SimpleNamespace(lr=0.1),
    re.compile("a"),
    "a".upper,
    {"net": FIVE, "optimizer": functools.partial(torch.optim.AdamW, lr=0.1)},
]


@every_case("beside", BESIDE, ids=["partial", "namespace", "pattern", "method", "module in hyper-parameters"])
def test_objects_of_the_standard_library_beside_the_weights_are_left(beside: object, tmp_path: Path) -> None:
    torch.save({"state_dict": below("net.", GOOD), "hyper_parameters": beside}, tmp_path / "last.ckpt")
    assert distance(vitral.load(tmp_path / "last.ckpt"), FIVE) < TOLERANCE


def trained(architecture: str, pooling: str | None = None, **arguments: Any) -> tuple[Any, dict[str, Any]]:
    """Return a network, and the checkpoint of it that timm's training script writes."""
    arguments = {"depth": 2, "embed_dim": 96, "img_size": 32, **arguments}
    made = timm.create_model(architecture, num_classes=5, **arguments, **({"global_pool": pooling} if pooling else {}))
    args = argparse.Namespace(model=architecture, gp=pooling, model_kwargs=arguments, lr=0.1)
    peer = random_weights(made)
    return peer, {"arch": architecture, "state_dict": peer.state_dict(), "version": 2, "args": args, "metric": 0.9}


@every_case(
    ("architecture", "pooling", "arguments"),
    [
        ("vit_small_patch16_dinov3", None, {}),  # which takes the mean by itself
        ("vit_tiny_patch16_224", "avg", {"fc_norm": False}),
        ("vit_tiny_patch16_224", None, {"num_heads": 6}),
    ],
)
def test_what_timms_training_script_says_of_a_network_is_read(
    architecture: str, pooling: str | None, arguments: dict[str, Any], tmp_path: Path
) -> None:
    peer, checkpoint = trained(architecture, pooling, **arguments)
    torch.save(checkpoint, tmp_path / "model_best.pth.tar")
    classifier = vitral.load(tmp_path / "model_best.pth.tar")
    assert distance(classifier, peer) < TOLERANCE
    assert not any("num_heads" in note for note in classifier.provenance.notes)


def test_a_network_that_timms_training_script_names_is_refused_or_is_not_timms(tmp_path: Path) -> None:
    peer, checkpoint = trained("vit_base_patch16_rpn_224")
    torch.save(checkpoint, tmp_path / "last.pth.tar")
    with pytest.raises(WeightsError, match="'arch'.*vit_base_patch16_rpn_224"):
        vitral.load(tmp_path / "last.pth.tar")
    torch.save({"arch": "vit_small", "state_dict": GOOD}, tmp_path / "last.pth.tar")  # MoCo's own name
    assert distance(vitral.load(tmp_path / "last.pth.tar"), FIVE) < TOLERANCE


@every_case("name", ["AttributeDict", "CfgNode"])  # Lightning's and yacs's, which has attributes, too
def test_settings_of_libraries_are_not_imported(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = type(name, (dict,), {"__module__": __name__})
    monkeypatch.setitem(globals(), name, kind)
    settings = kind(lr=0.1)
    settings.frozen = True
    content = {"state_dict": below("model.", GOOD), "hyper_parameters": settings, "callbacks": {}}
    torch.save(content, tmp_path / "last.ckpt")
    monkeypatch.delitem(globals(), name)  # so that nothing could make one
    assert distance(vitral.load(tmp_path / "last.ckpt"), FIVE) < TOLERANCE


class Calls:
    """Calls a function when it is unpickled."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return self.call


@every_case("legacy", [False, True])
def test_functions_in_a_file_are_refused_and_not_called(legacy: bool, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    for call in (Calls(subprocess.call, ["touch", str(canary)]), Calls(eval, f"open({str(canary)!r}, 'w')")):
        torch.save({"model": GOOD, "more": call}, tmp_path / "a.pth", _use_new_zipfile_serialization=not legacy)
        with pytest.raises(WeightsError, match=r"a\.pth"):
            vitral.load(tmp_path / "a.pth")
    assert not canary.exists()


@every_case(
    ("content", "named"),
    [
        (FIVE, "timm.models.vision_transformer.VisionTransformer"),
        ({"model": FIVE}, "'model' .*VisionTransformer"),
        ({"epoch": 3, "loss": 0.1}, "epoch, loss"),
        ({"student": GOOD, "teacher": BAD}, "'student.' and 'teacher.'"),
        ({**below("a.", GOOD), **below("b.", BAD)}, "'a.' and 'b.'"),
        ({"model_optimal": GOOD, "last": BAD}, "'model_optimal.' and 'last.'"),
        ({**GOOD, "head.weight": GOOD["head.weight"].numpy()}, "'head.weight' is an object of numpy.*not a tensor"),
    ],
    ids=["module", "module in a dict", "no tensors", "two entries", "two attributes", "an optimum", "an array"],
)
def test_what_holds_no_network_or_several_is_named(content: Any, named: str, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "a.pth")
    with pytest.raises(WeightsError, match=named):
        vitral.load(tmp_path / "a.pth")


BARE, PRETRAINED = network(0), network(1000)
BAD_BARE = network(0, seed=3).state_dict()
HEAD, NO_BIAS = linear(WIDTH, 5), linear(WIDTH, 5, bias=False)
AFTER, AFTER_NO_BIAS = linear(1000, 5), linear(1000, 5, bias=False)
WITHOUT, WITH = below("model.", BARE.state_dict()), below("model.", PRETRAINED.state_dict())


def features(images: Tensor) -> Tensor:
    return PRETRAINED.forward_head(PRETRAINED.forward_features(images), pre_logits=True)


HEADS: list[tuple[dict[str, Any], Callable[[Tensor], Tensor], str]] = [
    (WITHOUT | below("fc.", HEAD.state_dict()), lambda images: HEAD(BARE(images)), "fc.weight, fc.bias"),
    (WITHOUT | below("classifier.1.", HEAD.state_dict()), lambda images: HEAD(BARE(images)), "classifier.1.weight"),
    (WITHOUT | below("head.", NO_BIAS.state_dict()), lambda images: NO_BIAS(BARE(images)), "head.weight"),
    ({"backbone": BARE.state_dict(), "head": HEAD.state_dict()}, lambda images: HEAD(BARE(images)), "head.weight"),
    (BARE.state_dict() | below("fc.", HEAD.state_dict()), lambda images: HEAD(BARE(images)), "fc.weight"),
    (
        below("0.", BARE.state_dict()) | below("1.", HEAD.state_dict()),
        lambda images: HEAD(BARE(images)),
        "1.weight, 1.bias",
    ),
    (WITH | below("fc.", HEAD.state_dict()), lambda images: HEAD(features(images)), "fc.weight.* 1,000 classes"),
    (
        {"state_dict": WITH | below("classifier.", AFTER.state_dict())},
        lambda images: AFTER(PRETRAINED(images)),
        "classifier.weight, .*classifier.bias.* 1,000 outputs",
    ),
    (
        WITH | below("fc.", AFTER_NO_BIAS.state_dict()),
        lambda images: AFTER_NO_BIAS(PRETRAINED(images)),
        "fc.weight.* 1,000 outputs",
    ),
    (
        {
            "model": below("backbone.", BAD_BARE) | below("fc.", NO_BIAS.state_dict()),
            "model_ema": below("backbone.", BARE.state_dict()) | below("fc.", HEAD.state_dict()),
        },
        lambda images: HEAD(BARE(images)),
        "model_ema.fc.weight",
    ),
]


@every_case(("content", "peer", "named"), HEADS, ids=[named for _, _, named in HEADS])
def test_a_head_beside_the_network_is_taken_where_it_fits(
    content: dict[str, Any], peer: Callable[[Tensor], Tensor], named: str, tmp_path: Path
) -> None:
    torch.save(content, tmp_path / "last.ckpt")
    classifier = vitral.load(tmp_path / "last.ckpt")
    assert distance(classifier, peer) < TOLERANCE
    assert any(re.search(f"head is .*{named}", note) for note in classifier.provenance.notes)


def test_a_head_that_was_made_without_a_bias_is_read(tmp_path: Path) -> None:
    peer = network(5)
    peer.head = NO_BIAS
    torch.save(peer.state_dict(), tmp_path / "best.pth")
    classifier = vitral.load(tmp_path / "best.pth")
    assert distance(classifier, peer) < TOLERANCE
    assert "Its head has no bias." in classifier.provenance.notes


def test_of_a_pooler_and_a_classifier_is_said_which_is_assumed_to_be_read(tmp_path: Path) -> None:
    config = transformers.ViTConfig(
        hidden_size=WIDTH, num_hidden_layers=1, num_attention_heads=3, intermediate_size=64, image_size=32
    )
    body = random_weights(transformers.ViTModel(config))
    torch.save(below("vit.", body.state_dict()) | below("classifier.", HEAD.state_dict()), tmp_path / "a.pth")
    pooled = vitral.load(tmp_path / "a.pth")
    assert any("representation_size=null" in note for note in pooled.provenance.notes)
    assert distance(pooled, lambda images: HEAD(body(images).pooler_output)) < TOLERANCE
    token = vitral.load(tmp_path / "a.pth", architecture={"representation_size": None})
    assert not any("pooler" in note for note in token.provenance.notes)
    assert distance(token, lambda images: HEAD(body(images).last_hidden_state[:, 0])) < TOLERANCE


MLP = nn.Sequential(linear(WIDTH, 64), nn.ReLU(), linear(64, 5))
NORMED = {**below("bn.", nn.BatchNorm1d(WIDTH).state_dict()), **below("fc.", HEAD.state_dict())}


@every_case(
    ("content", "classes", "named"),
    [
        (WITHOUT | below("head.", MLP.state_dict()), 1000, "head.0.weight"),
        (WITH | below("head.", MLP.state_dict()), 1000, "head.0.weight"),
        (WITHOUT | NORMED, 1000, "bn.weight"),
        (WITHOUT | below("projector.", HEAD.state_dict()), 1000, "projector.weight"),
        (below("model.", GOOD) | {"mean": torch.zeros(1, 3, 1, 1)}, 5, "mean"),
    ],
    ids=["mlp", "mlp after a head", "norm before a head", "projection", "normalisation"],
)
def test_what_is_left_out_is_named(content: dict[str, Any], classes: int, named: str, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "last.ckpt")
    classifier = vitral.load(tmp_path / "last.ckpt")
    assert classifier.model.num_classes == classes
    notes = " ".join(classifier.provenance.notes)
    assert f"Left out, since it is no part of the network that is known here: {named}" in notes
    assert "has no head" not in notes
    assert ("fine-tuned" in notes) == (not classifier.model.head.weight.any())


@every_case(
    ("content", "named"),
    [
        (
            WITHOUT | below("a_head.", HEAD.state_dict()) | below("b_head.", HEAD.state_dict()),
            "a_head.weight and b_head",
        ),
        (below("model.", GOOD) | below("fc.", HEAD.state_dict()), "head.weight and fc.weight"),
    ],
    ids=["two beside", "one within, one beside"],
)
def test_two_heads_that_fit_are_refused(content: dict[str, Any], named: str, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "last.ckpt")
    with pytest.raises(WeightsError, match=named):
        vitral.load(tmp_path / "last.ckpt")


def huggingface(folder: Path, labels: int = 3, seed: int = 0, **settings: Any) -> Any:  # of transformers
    config = transformers.ViTConfig(
        hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=3, intermediate_size=64, image_size=32, patch_size=16,
        num_labels=labels, **settings,
    )  # fmt: skip
    model = random_weights(transformers.ViTForImageClassification(config), seed)
    model.save_pretrained(folder)
    return model


def test_one_output_is_the_sigmoid_of_the_second_of_two_classes(tmp_path: Path) -> None:
    peer = network(1)
    torch.save(peer.state_dict(), tmp_path / "binary.pth")
    classifier = vitral.load(tmp_path / "binary.pth")
    images = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        right = peer(images).sigmoid()[:, 0]
    assert right.std() > 0.01
    assert classifier.class_names == ("class 0", "class 1")
    torch.testing.assert_close(classifier.probabilities(images)[:, 1], right, rtol=0, atol=1e-6)
    assert any("sigmoid" in note and "second of two classes" in note for note in classifier.provenance.notes)
    written = vitral.convert(classifier, tmp_path / "two.pth", format="timm")
    torch.testing.assert_close(vitral.load(written.path)(images), classifier(images))


def test_one_output_beside_the_network_is_read_so_too(tmp_path: Path) -> None:
    one = linear(WIDTH, 1)
    torch.save(WITHOUT | below("fc.", one.state_dict()), tmp_path / "binary.pth")
    half = distance(
        vitral.load(tmp_path / "binary.pth"), lambda images: one(BARE(images)) * torch.tensor([[-0.5, 0.5]])
    )
    assert half < TOLERANCE


def test_problems_of_transformers(tmp_path: Path) -> None:
    for labels in (1, 3):
        huggingface(tmp_path / "numbers", labels, problem_type="regression")
        with pytest.raises(WeightsError, match="problem_type: regression"):
            vitral.load(tmp_path / "numbers")
    images = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    for labels in (1, 3):
        peer = huggingface(tmp_path / "several", labels, problem_type="multi_label_classification")
        classifier = vitral.load(tmp_path / "several")
        assert classifier.task.name == "multi-label"
        with torch.no_grad():
            torch.testing.assert_close(classifier.probabilities(images), peer(images).logits.sigmoid())
    peer = huggingface(tmp_path / "one", 1, id2label={0: "scratch"}, label2id={"scratch": 0})
    classifier = vitral.load(tmp_path / "one")
    assert classifier.class_names == ("not scratch", "scratch")
    with torch.no_grad():
        torch.testing.assert_close(classifier.probabilities(images)[:, 1:], peer(images).logits.sigmoid())


def test_of_a_trainers_checkpoints_the_best_is_read_or_the_last(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    peers = {step: huggingface(folder / f"checkpoint-{step}", seed=step) for step in (9, 100, 20)}
    last = folder / "checkpoint-100"
    (folder / "checkpoint-300").mkdir()  # a save that was killed
    for best, step, why in (
        (None, 100, "the last"),
        ("/elsewhere/out/checkpoint-20", 20, "the best by its trainer_state.json"),
        ("out\\checkpoint-9\\", 9, "the best"),
        ("out/checkpoint-5", 100, "the last"),
    ):
        (last / "trainer_state.json").write_text(json.dumps({"best_model_checkpoint": best}))
        classifier = vitral.load(folder)
        assert distance(classifier, lambda images, step=step: peers[step](images).logits) < TOLERANCE  # type: ignore[misc]
        assert f"checkpoint-{step}, {why}" in classifier.provenance.notes[0]
    (last / "trainer_state.json").write_text("{")
    with pytest.raises(WeightsError, match="trainer_state"):
        vitral.load(folder)
