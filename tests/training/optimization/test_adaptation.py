"""Which weights learn."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.cases import every_case
from tests.conftest import TINY
from tests.training.conftest import CONFIG, Run
from vitral.classifier.classifier import Classifier
from vitral.classifier.folder import save
from vitral.classifier.load import load
from vitral.errors import RecipeError
from vitral.images.preprocessing import PHOTOS
from vitral.models.catalog import variant
from vitral.models.dense.dense_model import DenseConfig
from vitral.models.dense.detail import DetailHeadConfig
from vitral.models.families import build, create_model
from vitral.models.model import ModelConfig
from vitral.tasks.semantic import SEMANTIC
from vitral.training.optimization.adaptation import adapt, batch_norms, settle, training_mode
from vitral.training.settings.sections import AdaptationSettings

CONVOLUTIONS_BELOW = replace(
    variant("conv-vit-8"), image_size=(32, 32), dim=16, mlp_dim=32, num_heads=2, num_classes=10
)


@every_case("method", ["probe", "lora"])
@every_case("config", [CONFIG, CONVOLUTIONS_BELOW], ids=["vit", "with batch norms"])
def test_what_is_frozen_stays(tmp_path: Path, config: ModelConfig, method: str) -> None:
    run = Run(tmp_path / "run", config)
    start = {name: tensor.clone() for name, tensor in build(config, seed=1).state_dict().items()}
    model, _ = run.train(adaptation={"method": method, "lora_rank": 2}, optimizer={"lr": 0.01})
    changed = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, start[name])}
    assert {"head.weight", "head.bias"} <= changed
    others = changed - {"head.weight", "head.bias"}
    if method == "probe":
        assert others == set()
    else:
        assert others == {f"encoder.{b}.{layer}.weight" for b in (0, 1) for layer in LAYERS}
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert model.state_dict().keys() == start.keys()


@every_case("name", ["resnet-18", "conv-vit-8", "cvt-13", "coatnet-0", "efficientnet-b0"])
def test_a_frozen_network_gives_what_it_gave(name: str) -> None:
    """Features that a probe was fitted on are the same after the probe has learned for a while, in every family."""
    model = create_model(name, num_classes=10, image_size=32)
    settings = AdaptationSettings(method="probe")
    adapt(model, settings, seed=0)
    torch.nn.init.normal_(model.head.weight)
    images, others = torch.rand(2, 8, 3, 32, 32)
    before = model.eval()(images)
    training_mode(model, settings)
    model(others)
    torch.testing.assert_close(model.eval()(images), before)


def test_a_frozen_backbones_positions_stay_and_one_that_learns_has_them_moved() -> None:
    config = replace(TINY, position="none", rotary="dinov3", rotary_rescale=2.0, depth=1)
    for method, same in (("probe", True), ("lora", False), ("full", False)):
        model, settings = build(config, seed=0), AdaptationSettings(method=method)  # type: ignore[arg-type]
        adapt(model, settings, seed=0)
        training_mode(model, settings)
        first, second = (model.encode(torch.ones(1, 3, 16, 16)).tokens for _ in range(2))  # type: ignore[union-attr]
        assert torch.equal(first, second) == same, method


def test_the_batch_norms_of_first_blocks_that_are_frozen_stay_and_those_that_learn_move() -> None:
    config = replace(variant("resnet-18"), stages=(1, 1), num_classes=10, image_size=(32, 32))
    model = build(config, seed=0)
    settings = AdaptationSettings(frozen_blocks=1)
    adapt(model, settings, seed=0)
    before = {name: tensor.clone() for name, tensor in model.named_buffers() if name.endswith("running_mean")}
    training_mode(model, settings)
    model(torch.rand(4, 3, 32, 32))
    learn = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    moved = {name for name, tensor in model.named_buffers() if name in before and not torch.equal(tensor, before[name])}
    assert moved == {name for name in before if name.replace("running_mean", "weight") in learn}
    assert set() < moved < before.keys()


def test_statistics_that_are_frozen_stay_where_scales_learn(tmp_path: Path) -> None:
    run, config = Run(tmp_path / "run", CONVOLUTIONS_BELOW), CONVOLUTIONS_BELOW
    start = {name: tensor.clone() for name, tensor in build(config, seed=1).state_dict().items()}
    model, _ = run.train(adaptation={"frozen_statistics": True}, optimizer={"lr": 0.01})
    norms = {name: tensor for name, tensor in model.named_modules() if isinstance(tensor, torch.nn.BatchNorm2d)}
    assert norms
    for name, norm in norms.items():
        assert norm.running_mean is not None
        assert torch.equal(norm.running_mean, start[f"{name}.running_mean"])
        assert not torch.equal(norm.weight, start[f"{name}.weight"])


@every_case("name", ["efficientnet-lite0", "efficientnet-b0", "resnet-18"])
def test_norms_that_stand_still_give_the_gradients_that_they_give_in_use(name: str) -> None:
    still = {"dropout": 0.0, "stochastic_depth": 0.0}
    model = build(replace(variant(name), image_size=(48, 48), num_classes=3, **still), seed=0)
    generator = torch.Generator().manual_seed(0)
    for norm in batch_norms(model):
        for tensor in (norm.weight.data, norm.bias.data, norm.running_mean, norm.running_var):
            assert tensor is not None
            tensor.uniform_(0.5, 1.5, generator=generator)
    images, found = torch.rand(2, 3, 48, 48, generator=generator), []
    for learns in (False, True):
        model.eval()
        if learns:
            training_mode(model, AdaptationSettings(frozen_statistics=True))
        model.zero_grad()
        logits = model(images)
        logits.square().sum().backward()
        gradients = [parameter.grad for parameter in model.parameters()]
        found.append([logits.detach(), *(gradient.clone() for gradient in gradients if gradient is not None)])
    torch.testing.assert_close(found[1], found[0], rtol=1e-3, atol=1e-4 * float(found[0][0].abs().max()))


LAYERS = ("attention.qkv", "attention.out", "mlp.fc1", "mlp.fc2")


def test_low_rank_changes_start_at_nothing_and_go_into_the_weights() -> None:
    model = build(CONFIG, seed=0)
    torch.nn.init.normal_(model.head.weight)
    images = torch.randn(2, 3, 8, 8)
    model.eval()
    before = model(images)
    learning = adapt(model, AdaptationSettings(method="lora", lora_rank=2), seed=0)
    torch.testing.assert_close(model(images), before)
    learned = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert learned < 0.6 * sum(p.numel() for p in model.parameters())
    for name, parameter in model.named_parameters():
        if name.endswith(".up"):
            torch.nn.init.normal_(parameter)
    adapted = model(images)
    assert not torch.allclose(adapted, before)
    settle(model, learning)
    torch.testing.assert_close(model(images), adapted)
    assert not any("parametrizations" in name for name in model.state_dict())


@every_case(
    "settings",
    [
        AdaptationSettings(),
        AdaptationSettings(frozen_blocks=1),
        AdaptationSettings(method="probe"),
        AdaptationSettings(method="lora"),
    ],
)
def test_what_a_head_has_in_closed_form_learns_in_no_case(settings: AdaptationSettings, tmp_path: Path) -> None:
    config = DenseConfig(backbone=variant("vit-nano4"), head=DetailHeadConfig(), num_classes=3, image_size=(32, 32))
    saved = save(
        Classifier(build(config, seed=0), PHOTOS.with_size((32, 32)), ("a", "b", "c"), task=SEMANTIC), tmp_path / "c"
    )
    for model in (build(config, seed=0), load(saved).model):
        before = {name: parameter.requires_grad for name, parameter in model.named_parameters()}
        assert {name for name, learns in before.items() if not learns} == {
            f"head.first.{layer}.{kind}" for layer in ("expand", "classifier") for kind in ("weight", "bias")
        }
        learning = adapt(model, settings, seed=0)
        training_mode(model, settings)
        with torch.no_grad():
            model.head.classifier.weight.normal_()  # type: ignore[union-attr, operator]
        model(torch.randn(2, 3, 32, 32)).square().sum().backward()
        for name, parameter in model.named_parameters():  # as several processes need it
            assert (parameter.grad is not None) == parameter.requires_grad, name
        settle(model, learning)
        assert {name: parameter.requires_grad for name, parameter in model.named_parameters()} == before


def test_first_blocks_can_be_frozen() -> None:
    model = build(CONFIG, seed=0)
    adapt(model, AdaptationSettings(frozen_blocks=1), seed=0)
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    assert all(name.startswith(("encoder.0.", "patch_embedding", "class_token", "position")) for name in frozen)
    assert "encoder.0.norm1.weight" in frozen
    with pytest.raises(RecipeError, match="only 2 blocks"):
        adapt(model, AdaptationSettings(frozen_blocks=3), seed=0)
