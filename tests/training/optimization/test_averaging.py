"""What the average gives a checkpoint and takes back from it."""

import dataclasses

import torch
from torch import nn

from tests.conftest import TINY
from vitral.models.experts import ExpertsConfig, MixtureOfExperts, Rows
from vitral.models.families import build
from vitral.training.optimization.averaging import Average

CONFIG = dataclasses.replace(TINY, experts=ExpertsConfig(blocks=(1,), num_experts=4))


def moved(module: nn.Module, average: Average) -> None:
    """Move the weights and the average some way."""
    with torch.no_grad():
        for number, parameter in enumerate(module.parameters()):
            parameter.add_(0.1 + number)
    average.update(3)


def test_a_checkpoint_gets_the_average_of_every_parameter_that_learns() -> None:
    network = build(CONFIG)
    network.head.requires_grad_(False)
    average = Average(network, 0.9)
    moved(network, average)
    held = average.state_dict()
    parameters = {name: parameter for name, parameter in network.named_parameters() if not name.startswith("head.")}
    assert held.keys() == parameters.keys()
    for name, (tensor, like, rows) in held.items():
        assert tensor is average.tensors[name]
        assert not torch.equal(tensor, parameters[name])
        assert like is parameters[name]
        assert rows is None


def test_a_checkpoint_learns_which_rows_of_the_experts_are_here() -> None:
    network = build(CONFIG)
    layer = next(part for part in network.modules() if isinstance(part, MixtureOfExperts))
    layer.rows = Rows(0, 2, 4)  # as expert parallelism leaves it
    held = Average(network, 0.9).state_dict()
    shared = {name for name, one in held.items() if one.rows is not None}
    assert shared == {f"encoder.1.mlp.{part}.{kind}" for part in ("fc1", "fc2") for kind in ("weight", "bias")}
    assert {held[name].rows for name in shared} == {layer.rows}


def test_an_average_is_taken_back_as_it_was_given() -> None:
    one, other = build(CONFIG, seed=0), build(CONFIG, seed=1)
    given, taken = Average(one, 0.9), Average(other, 0.9)
    moved(one, given)
    weights = [parameter.detach().clone() for parameter in other.parameters()]
    taken.load_state_dict({name: held.tensor.clone() for name, held in given.state_dict().items()})
    assert all(torch.equal(taken.tensors[name], tensor) for name, tensor in given.tensors.items())
    assert all(torch.equal(now, before) for now, before in zip(other.parameters(), weights, strict=True))
