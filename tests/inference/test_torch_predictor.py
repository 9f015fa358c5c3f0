"""The predictor of torch: the same answers whatever the mode, the batch and the precision, and nothing left behind."""

import dataclasses
from typing import Literal

import pytest
import torch
from torch import Tensor

from vitral.errors import ModelError
from vitral.inference.torch_predictor import TorchPredictor, evaluating
from vitral.models.bit import BiTConfig
from vitral.models.families import build
from vitral.models.model import Model
from vitral.models.resnet import ResNetConfig
from vitral.models.t2t import T2TConfig
from vitral.models.vit_config import ViTConfig

RESNET = ResNetConfig(stages=(1,), bottleneck=False, image_size=(32, 48), num_classes=4)


def network(config: ViTConfig | ResNetConfig | BiTConfig | T2TConfig) -> Model:
    """Build a network whose head is not zero."""
    model = build(config, seed=0)
    torch.nn.init.normal_(model.head.weight, generator=torch.Generator().manual_seed(0))
    return model.eval()


def images(count: int, *, size: tuple[int, int] = (16, 16)) -> Tensor:
    """Make prepared images."""
    return torch.randn(count, 3, *size, generator=torch.Generator().manual_seed(1))


def modes(model: Model) -> dict[str, bool]:
    """Tell the mode of every part by its name."""
    return {name: part.training for name, part in model.named_modules()}


@pytest.mark.parametrize("ask", ["logits", "features", "attention"])
def test_a_network_that_trains_answers_without_dropout_and_goes_on_training(tiny_config: ViTConfig, ask: str) -> None:
    model = network(dataclasses.replace(tiny_config, dropout=0.5, attention_dropout=0.5, stochastic_depth=0.5))
    predictor, batch = TorchPredictor(model), images(4)
    expected = getattr(predictor, ask)(batch)
    model.train()
    model.blocks()[0].eval()  # a user who freezes a part
    before = modes(model)
    answer = getattr(predictor, ask)(batch)
    assert modes(model) == before
    assert torch.equal(getattr(answer, "logits", answer), getattr(expected, "logits", expected))


@pytest.mark.parametrize("ask", ["logits", "features", "attention", "class_maps"])
def test_an_error_leaves_the_mode_as_it_was(tiny_config: ViTConfig, ask: str) -> None:
    model = network(tiny_config).train()
    model.blocks()[1].eval()
    before = modes(model)
    with pytest.raises(ModelError, match="takes images of 16x16"):
        getattr(TorchPredictor(model), ask)(images(1, size=(32, 32)))
    assert modes(model) == before


def test_a_norm_learns_nothing_of_the_images_that_are_predicted() -> None:
    model = network(RESNET).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    predictor = TorchPredictor(model)
    predictor.logits(images(2, size=(32, 48)))
    predictor.class_maps(images(2, size=(32, 48)))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_mode_is_evaluation_inside_and_the_flags_are_the_parts_own(tiny_config: ViTConfig) -> None:
    model = network(tiny_config).train()
    with evaluating(model):
        assert not any(modes(model).values())
        with evaluating(model):
            pass
        assert not any(modes(model).values())
    assert all(modes(model).values())


@pytest.mark.parametrize("batch_size", [1, 3, 7])
@pytest.mark.parametrize("config", ["vit", "resnet"])
def test_an_image_has_the_same_answer_in_every_batch(tiny_config: ViTConfig, config: str, batch_size: int) -> None:
    model = network(tiny_config if config == "vit" else RESNET)
    predictor, batch = TorchPredictor(model), images(7, size=model.image_size)
    for compute in (lambda part: predictor.logits(part).softmax(-1), predictor.features):
        parts = torch.cat([compute(part) for part in torch.split(batch, batch_size)])
        torch.testing.assert_close(parts, compute(batch), rtol=0, atol=1e-6)


def test_logits_are_the_networks_own_to_the_bit(tiny_config: ViTConfig) -> None:
    model = network(tiny_config)
    predictor, batch = TorchPredictor(model), images(5)
    assert torch.equal(predictor.logits(batch), model(batch))
    assert torch.equal(predictor.features(batch), model.features(batch))
    assert not predictor.logits(batch).requires_grad


def test_a_network_in_another_precision_answers_in_float32(tiny_config: ViTConfig) -> None:
    model = network(tiny_config)
    predictor, batch = TorchPredictor(model), images(3)
    expected = predictor.logits(batch)
    model.to(torch.bfloat16)
    answer = predictor.logits(batch)
    assert answer.dtype == predictor.features(batch).dtype == torch.float32
    torch.testing.assert_close(answer, expected, rtol=0, atol=0.1)
    attended = predictor.attention(batch)
    assert {tensor.dtype for tensor in (attended.logits, attended.pooling, *attended.attentions)} == {torch.float32}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_network_on_a_gpu_answers_on_the_cpu(tiny_config: ViTConfig) -> None:
    model = network(tiny_config)
    predictor, batch = TorchPredictor(model), images(3)
    expected = predictor.logits(batch)
    model.cuda()
    attended, answer = predictor.attention(batch), predictor.logits(batch)
    tensors = (answer, predictor.features(batch), attended.pooling, *attended.attentions)
    assert {tensor.device.type for tensor in tensors} == {"cpu"}
    torch.testing.assert_close(answer, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("pooling", ["token", "gap", "map"])
def test_attention_has_a_row_for_every_token_of_every_layer(
    tiny_config: ViTConfig, pooling: Literal["token", "gap", "map"]
) -> None:
    config = dataclasses.replace(tiny_config, pooling=pooling, registers=2, image_size=(12, 20))
    predictor, batch = TorchPredictor(network(config)), images(3, size=(12, 20))
    attended = predictor.attention(batch)
    prefix = 2 + (pooling == "token")
    assert predictor.has_attention
    assert (attended.num_prefix_tokens, attended.grid, attended.stride) == (prefix, (3, 5), (4, 4))
    assert [layer.shape for layer in attended.attentions] == 2 * [(3, 2, 15 + prefix, 15 + prefix)]
    for layer in attended.attentions:
        torch.testing.assert_close(layer.sum(-1), torch.ones(3, 2, 15 + prefix))
    torch.testing.assert_close(attended.pooling.sum(-1), torch.ones(3))
    torch.testing.assert_close(attended.logits, predictor.logits(batch), rtol=0, atol=1e-5)


def test_class_maps_are_of_the_last_feature_map_and_carry_no_graph() -> None:
    predictor = TorchPredictor(network(RESNET))
    batch = images(2, size=(32, 48))
    seen = predictor.class_maps(batch)
    assert not predictor.has_attention
    assert seen.maps.shape == seen.gradients.shape == (2, predictor.model.num_features, 8, 12)
    assert not any(tensor.requires_grad for tensor in (seen.logits, seen.maps, seen.gradients))
    torch.testing.assert_close(seen.logits, predictor.logits(batch), rtol=0, atol=1e-5)
    with pytest.raises(ModelError, match="has no attention"):
        predictor.attention(batch)


def test_what_computes_is_said_as_it_is_now(tiny_config: ViTConfig) -> None:
    model = build(tiny_config, seed=0)
    predictor = TorchPredictor(model)
    assert predictor.describe() == "ViT with patch_size 4x4, depth 2, width 16, mlp_width 32 and heads 2"
    assert (predictor.image_size, predictor.num_classes) == ((16, 16), 3)
    assert predictor.num_parameters == sum(parameter.numel() for parameter in model.parameters())
    model.resize(32)
    model.replace_head(7)
    assert (predictor.image_size, predictor.num_classes) == ((32, 32), 7)
