"""A dense network with experts in its MLPs' place answers as before, and learns from there on."""

from typing import Any

import pytest
import torch
from torch import nn

from tests.cases import every_case
from vitral.errors import ModelError
from vitral.models.catalog import VARIANTS
from vitral.models.experts import change_experts
from vitral.models.families import build, replace
from vitral.models.model import Model
from vitral.models.upcycling import expert_blocks, upcycle


def dense(name: str = "vit-mu16", **changes: Any) -> Model:  # noqa: ANN401
    network = build(replace(VARIANTS[name], image_size=(32, 32), num_classes=5, **changes), seed=0)
    nn.init.normal_(network.head.weight, generator=torch.Generator().manual_seed(0))
    return network


def images(count: int = 8) -> torch.Tensor:
    return torch.randn(count, 3, 32, 32, generator=torch.Generator().manual_seed(1))


@every_case("number", [4, 8])
@every_case("places", ["every-2", "last-1"])
def test_it_answers_as_the_dense_one_does(places: str, number: int) -> None:
    network = dense(depth=4).eval()
    made = upcycle(network, places, number=number, seed=3)
    change_experts(made, evaluation_capacity_factor=float(number))  # room for every token
    torch.testing.assert_close(made(images()), network(images()), rtol=0.02, atol=0.05)
    assert not torch.equal(made(images()), network(images()))
    layer: Any = made.blocks()[3]
    assert layer.mlp.fc1.weight.shape[0] == number
    assert torch.equal(layer.mlp.fc1.weight[0], layer.mlp.fc1.weight[-1])


def test_tokens_go_to_several_experts_and_all_of_it_learns() -> None:
    made = upcycle(dense(depth=2), "every-2", number=4, seed=3).train()
    outputs = made.outputs(images())
    assert outputs.auxiliary.keys() == {"importance", "load"}
    (outputs.logits.square().mean() + sum(outputs.auxiliary.values())).backward()  # type: ignore[no-untyped-call]
    layer: Any = made.blocks()[1]
    used = layer.mlp.fc1.weight.grad.flatten(1).abs().sum(dim=1)
    assert int((used > 0).sum()) >= 3
    assert layer.mlp.router.weight.grad.abs().sum() > 0


def test_it_is_a_function_of_the_seed_and_leaves_the_dense_one_alone() -> None:
    network = dense(depth=2)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    one, same, other = (upcycle(network, "every-2", seed=seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["encoder.1.mlp.router.weight"], other["encoder.1.mlp.router.weight"])
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_which_blocks() -> None:
    assert expert_blocks("every-2", 6) == (1, 3, 5)
    assert expert_blocks("last-2", 12) == (9, 11)
    assert expert_blocks("every-3", 7) == (2, 5)
    for places in ("last-2x", "first-2", "every-0", "last-", "-1", ""):
        with pytest.raises(ModelError, match="does not say which blocks"):
            expert_blocks(places, 12)
    with pytest.raises(ModelError, match="are no blocks of a network of 2"):
        expert_blocks("every-3", 2)


@every_case("name", ["resnet-10", "vmoe-s32"])
def test_a_network_without_plain_mlps_is_refused(name: str) -> None:
    with pytest.raises(ModelError, match="this network has none to give"):
        upcycle(dense(name), "last-1", seed=0)
