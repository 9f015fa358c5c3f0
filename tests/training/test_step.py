"""A step against the same written out plainly: forward, backward, clip, rate, update, average, and nothing where it fails."""

import contextlib
import dataclasses
import hashlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from tests.cases import every_case
from tests.training.conftest import CONFIG
from vitral.data.batch import Batch
from vitral.models.catalog import variant
from vitral.models.experts import ExpertsConfig
from vitral.models.families import build
from vitral.models.layers import BatchPart
from vitral.tasks.single_label import SINGLE_LABEL
from vitral.training.methods.method import Context
from vitral.training.methods.supervised import Supervised
from vitral.training.methods.views import Part, Seen
from vitral.training.settings.recipe import Recipe, build_recipe
from vitral.training.step import Step, StepResult, over_all_processes

PLAIN = dataclasses.replace(CONFIG, dropout=0.0)
BETAS, EPS, DECAY, LIMIT = (0.8, 0.95), 1e-6, 0.1, 0.7


def normalize(pixels: Tensor) -> Tensor:
    return pixels.float() / 100 - 1


def batches(count: int, size: int = 12) -> list[Batch]:
    generator = torch.Generator().manual_seed(0)
    return [
        Batch(
            torch.randint(0, 256, (size, 3, 8, 8), dtype=torch.uint8, generator=generator),
            torch.randint(0, 10, (size,), generator=generator),
            torch.arange(size),
        )
        for _ in range(count)
    ]


def recipe_of(**changes: Any) -> Recipe:  # noqa: ANN401  # sections of a recipe
    optimizer = {"betas": BETAS, "eps": EPS, "weight_decay": DECAY, "decay_on": "all", "clip_norm": LIMIT}
    values: dict[str, Any] = {"batch_size": 12, "precision": "fp32", "seed": 5, "optimizer": optimizer, "averaging": {}}
    return build_recipe(values | changes, "test")


def stepper(model: Any, recipe: Recipe, kind: type[Supervised] = Supervised) -> Step:  # noqa: ANN401
    return Step(kind(model, recipe, SINGLE_LABEL), recipe, normalize)


def network(config: Any = PLAIN) -> Any:  # noqa: ANN401
    model = build(config, seed=0).train()
    torch.manual_seed(1)
    nn.init.normal_(model.head.weight, std=0.3)
    return model


def cross_entropy(model: Any, batch: Batch) -> tuple[Tensor, float]:  # noqa: ANN401
    logits = model(normalize(batch.images))
    logarithms = logits - logits.logsumexp(dim=1, keepdim=True)
    own = logarithms[torch.arange(len(batch.labels)), batch.labels]
    return -own.mean(), float((logits.argmax(dim=1) == batch.labels).double().mean())


@every_case("accumulation", [None, 2, 5, 12])
def test_steps_are_adamws_of_the_clipped_gradients_of_the_mean_loss(accumulation: int | None) -> None:
    ours, theirs = network(), network()
    step = stepper(ours, recipe_of(compute={"accumulation": accumulation}, averaging={"decay": 0.9}))
    parameters = list(theirs.parameters())
    moments = [[torch.zeros_like(p, dtype=torch.float64) for p in parameters] for _ in range(2)]
    average = {name: p.detach().double().clone() for name, p in theirs.named_parameters()}
    for number, batch in enumerate(batches(3)):
        rate = 0.01 / (number + 1)
        outcome = step(batch, number, rate, rate)
        loss, right = cross_entropy(theirs, batch)
        gradients = [gradient.double() for gradient in torch.autograd.grad(loss, parameters)]
        norm = math.sqrt(sum(float(gradient.square().sum()) for gradient in gradients))
        assert norm > LIMIT
        with torch.no_grad():
            for p, g, first, second in zip(parameters, gradients, *moments, strict=True):
                g = g * LIMIT / norm
                first.mul_(BETAS[0]).add_(g, alpha=1 - BETAS[0])
                second.mul_(BETAS[1]).add_(g.square(), alpha=1 - BETAS[1])
                mean, square = (m / (1 - beta ** (number + 1)) for m, beta in zip((first, second), BETAS, strict=True))
                p.copy_(p.double() * (1 - rate * DECAY) - rate * mean / (square.sqrt() + EPS))
            keep = min(0.9, (1 + number) / (10 + number))
            for name, p in theirs.named_parameters():
                average[name] = keep * average[name] + (1 - keep) * p.double()
        figures = outcome.figures()
        assert list(figures) == ["loss", "accuracy", "gradient_norm"]
        assert figures["loss"] == pytest.approx(float(loss.detach()), rel=1e-4)
        assert figures["accuracy"] == pytest.approx(right)
        assert figures["gradient_norm"] == pytest.approx(norm, rel=1e-3)
        assert outcome.finite is True
    for one, other in zip(ours.parameters(), parameters, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=3e-5)
        assert one.grad is None
    assert step.average is not None
    for name, tensor in step.average.tensors.items():
        torch.testing.assert_close(tensor.double(), average[name.removeprefix("network.")], rtol=1e-3, atol=3e-5)


def test_the_rates_are_the_heads_and_the_backbones() -> None:
    model = network()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    step = stepper(model, recipe_of(optimizer={"name": "sgd", "backbone_lr": 0.5, "momentum": 0.0, "clip_norm": None}))
    step(batches(1)[0], 0, 0.0, 1e-2)
    moved = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    assert moved
    assert not moved & {"head.weight", "head.bias"}


def draws(step: Step, number: int, batch: Batch) -> float:
    return float(step.gradients(batch, step=number)["loss"])


def test_dropout_is_a_function_of_seed_and_step_and_leaves_no_trace() -> None:
    """The stream of a step is that of "<seed>/dropout/<step>", with the process's rank where elements are drawn."""
    config = dataclasses.replace(CONFIG, dropout=0.3)
    batch = batches(1)[0]
    recipe = recipe_of(regularization={"dropout": 0.3})
    step = stepper(network(config), recipe)
    assert step.own_draws is True
    losses = [draws(step, number, batch) for number in (4, 4, 5)]
    assert losses[0] == losses[1] != losses[2]
    model = network(config)
    digest = hashlib.blake2b(b"5/dropout/4/0", digest_size=8).digest()
    torch.manual_seed(int.from_bytes(digest, "little") >> 1)
    assert losses[0] == pytest.approx(float(cross_entropy(model, batch)[0].detach()), rel=1e-6)


@every_case(
    ("regularization", "experts", "by_image", "own"),
    [
        ({}, False, False, False),
        ({"dropout": 0.1}, False, False, True),
        ({"attention_dropout": 0.1}, False, False, True),
        ({"stochastic_depth": 0.1}, False, False, False),
        ({}, True, False, True),
        ({}, False, True, True),
    ],
)
def test_processes_draw_alike_unless_something_is_drawn_by_element(
    regularization: dict[str, float], experts: bool, by_image: bool, own: bool
) -> None:
    config = dataclasses.replace(PLAIN, experts=ExpertsConfig(blocks=(1,), num_experts=4)) if experts else PLAIN

    class ByImage(Supervised):
        draws_by_image = by_image

    assert stepper(network(config), recipe_of(regularization=regularization), ByImage).own_draws is own
    if not own:
        step = stepper(network(), recipe_of())
        torch.manual_seed(0)
        step.gradients(batches(1)[0], step=2)
        digest = hashlib.blake2b(b"5/dropout/2", digest_size=8).digest()
        assert torch.initial_seed() == int.from_bytes(digest, "little") >> 1


@every_case("broken", ["loss", "gradient"])
def test_a_step_that_is_no_number_changes_nothing(broken: str) -> None:
    config = dataclasses.replace(variant("resnet-18"), stages=(1,), num_classes=10, image_size=(32, 32))
    model = build(config, seed=0).train()
    followed: list[int] = []

    class Breaking(Supervised):
        def loss(self, call: Callable[..., Any], part: Part) -> tuple[Tensor, dict[str, Tensor]]:
            loss, figures = super().loss(call, part)
            if breaks[0] and broken == "loss":
                return loss * math.inf, figures
            if breaks[0]:  # whose value is a number, and whose slope is none
                return loss + (self.network.head.weight.square().sum() * 0).sqrt(), figures
            return loss, figures

        def after_step(self, step: int) -> None:
            followed.append(step)

    breaks = [False]
    step = stepper(model, recipe_of(averaging={"decay": 0.9}), Breaking)
    images = torch.randint(0, 256, (12, 3, 32, 32), dtype=torch.uint8)
    batch = Batch(images, torch.arange(12) % 10, torch.arange(12))
    assert step(batch, 0, 0.01, 0.01).finite
    assert step.average is not None

    def everything() -> list[Tensor]:
        assert step.average is not None
        state = [*model.state_dict().values(), *step.average.tensors.values()]
        for optimizer in step.optimizers:
            state += [value for of in optimizer.state.values() for value in of.values()]
        return [tensor.detach().clone() for tensor in state if tensor.is_floating_point()]

    before = everything()
    breaks[0] = True
    outcome = step(batch, 1, 0.01, 0.01)
    assert outcome.finite is False
    assert all(torch.equal(one, other) for one, other in zip(everything(), before, strict=True))
    assert followed == [0]
    assert all(p.grad is None for p in model.parameters())
    assert step.weights_are_finite() is True
    breaks[0] = False
    assert step(batch, 2, 0.01, 0.01).finite is True
    assert followed == [0, 2]
    assert not all(torch.equal(one, other) for one, other in zip(everything(), before, strict=True))


def test_batch_norms_learn_in_a_step() -> None:
    config = dataclasses.replace(variant("resnet-18"), stages=(1,), num_classes=10, image_size=(32, 32))
    model = build(config, seed=0).train()
    before = model.get_buffer("root_norm.running_mean").clone()
    batch = Batch(torch.full((4, 3, 32, 32), 200, dtype=torch.uint8), torch.arange(4), torch.arange(4))
    step = stepper(model, recipe_of())
    step(batch, 0, 0.01, 0.01)
    assert not torch.equal(model.get_buffer("root_norm.running_mean"), before)


def test_every_optimizer_of_a_method_is_moved() -> None:
    class Two(Supervised):
        def optimizers(self) -> list[Optimizer]:
            self.network.requires_grad_(True)
            groups = ([self.network.head.weight], [self.network.head.bias])
            extra = {"scale": 1.0, "backbone": False, "penalty": 0.0}
            return [torch.optim.SGD([{"params": group, **extra}], lr=9.0) for group in groups]

    model = network()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    step = stepper(model, recipe_of(optimizer={"clip_norm": None}), Two)
    step(batches(1)[0], 0, 0.25, 9.0)
    reference = network()
    loss, _ = cross_entropy(reference, batches(1)[0])
    loss.backward()  # type: ignore[no-untyped-call]
    for name, p in model.named_parameters():
        if name.startswith("head."):
            expected = before[name] - 0.25 * dict(reference.named_parameters())[name].grad
            torch.testing.assert_close(p.detach(), expected, rtol=1e-4, atol=1e-6)
        else:
            assert torch.equal(p, before[name])
        assert p.grad is None


def test_bfloat16_is_used_where_it_is_asked_for() -> None:
    kinds: list[torch.dtype] = []

    class Watched(Supervised):
        def loss(self, call: Callable[..., Any], part: Part) -> tuple[Tensor, dict[str, Tensor]]:
            kinds.append((torch.ones(2, 2) @ torch.ones(2, 2)).dtype)
            return super().loss(call, part)

    for precision in ("bf16", "fp32"):
        stepper(network(), recipe_of(precision=precision), Watched).gradients(batches(1)[0], step=0)
    assert kinds == [torch.bfloat16, torch.float32]


def test_what_a_checkpoint_holds_has_its_names() -> None:
    plain, averaged = (stepper(network(), recipe_of(averaging=averaging)) for averaging in ({}, {"decay": 0.9}))
    assert list(plain.states()) == ["model", "optimizer", "method"]
    assert list(averaged.states()) == ["model", "average", "optimizer", "method"]
    assert plain.average is None
    assert averaged.states()["average"] is averaged.average
    assert averaged.states()["method"] is averaged.method
    assert len(plain.states()["model"].state_dict()) == len(plain.method.module.state_dict())
    assert plain(batches(1)[0], 0, 0.01, 0.01).finite
    assert len(plain.states()["optimizer"].state_dict()) >= 2 * len(list(plain.method.module.parameters()))


def test_a_weight_that_is_no_number_is_seen() -> None:
    step = stepper(network(), recipe_of())
    assert step.weights_are_finite() is True
    with torch.no_grad():
        step.method.network.head.bias[3] = math.nan
    assert step.weights_are_finite() is False


@every_case(("loss", "norm", "finite"), [(1.0, 2.0, True), (math.nan, 2.0, False), (1.0, math.inf, False)])
def test_what_came_of_a_step_says_whether_it_counts(loss: float, norm: float, finite: bool) -> None:
    outcome = over_all_processes({"loss": torch.tensor(loss), "accuracy": torch.tensor(0.1)}, torch.tensor(norm))
    assert outcome.finite is finite
    assert outcome.names == ("loss", "accuracy")
    assert outcome.sums.dtype == torch.float64
    values = StepResult(True, ("a", "b"), torch.tensor([1.0, 2.0]), torch.tensor(3.0)).figures()
    assert values == {"a": 1.0, "b": 2.0, "gradient_norm": 3.0}
    assert np.isclose(float(outcome.sums[1]), 0.1, rtol=1e-6)


def test_both_heads_of_a_distilled_network_learn_and_experts_are_balanced() -> None:
    experts = ExpertsConfig(blocks=(1,), num_experts=4)
    for config in (
        dataclasses.replace(variant("deit-ti16-distilled"), depth=1, dim=12, mlp_dim=12, num_classes=10),
        dataclasses.replace(PLAIN, experts=experts),
    ):
        model = network(config)
        if config.distilled:
            nn.init.normal_(model.distillation_head.weight)
        method = Supervised(model, recipe_of(), SINGLE_LABEL)
        images, labels = torch.randn(4, 3, *config.image_size), torch.arange(4)
        part = Part((Seen(images, images.byte(), labels),), BatchPart(0, 4))
        torch.manual_seed(2)
        loss, figures = method.loss(method.module, part)
        torch.manual_seed(2)
        outputs = model.outputs(images)
        heads = [outputs.logits, *([outputs.distillation_logits] if config.distilled else [])]
        losses = [-(head.log_softmax(dim=1))[torch.arange(4), labels].mean() for head in heads]
        balance = sum(0.005 * value for value in outputs.auxiliary.values())
        assert bool(outputs.auxiliary) != config.distilled
        torch.testing.assert_close(loss, sum(losses) / len(losses) + balance)
        assert list(figures) == ["accuracy"]
        assert float(figures["accuracy"]) == float((outputs.logits.argmax(dim=1) == labels).float().mean())
        assert not figures["accuracy"].requires_grad


@every_case("named", ["softmax", "sigmoid", "task"])
@every_case("smoothing", [0.0, 0.2])
def test_the_recipes_loss_is_learned_by(named: str, smoothing: float) -> None:
    recipe = recipe_of(objective={"name": named}, regularization={"label_smoothing": smoothing})
    logits, labels = torch.randn(5, 10), torch.arange(5)
    shares = torch.eye(10)[labels] * (1 - smoothing) + smoothing / 10
    expected = {
        "softmax": -(shares * logits.log_softmax(dim=1)).sum(dim=1).mean(),
        "sigmoid": -(shares * logits.sigmoid().log() + (1 - shares) * (1 - logits.sigmoid()).log()).sum(dim=1).mean(),
    }
    found = Supervised(network(), recipe, SINGLE_LABEL).loss_of(logits, labels)
    torch.testing.assert_close(found, expected["softmax" if named == "task" else named], rtol=1e-4, atol=1e-5)
    if named == "sigmoid":
        mean = recipe_of(objective={"name": named, "mean_over_classes": True, "binary_targets": True})
        mixed = torch.eye(10)[labels] * 0.4 + torch.eye(10)[labels + 1] * 0.6
        marks = (mixed > 0).float()
        found = Supervised(network(), mean, SINGLE_LABEL).loss_of(logits, mixed)
        torch.testing.assert_close(found, nn.functional.binary_cross_entropy_with_logits(logits, marks))


@every_case("images", [None, 4])
def test_sam_climbs_by_the_gradient_of_each_group_and_learns_from_where_it_leads(images: int | None) -> None:
    optimizer = {"name": "sgd", "sam_rho": 0.3, **({"sam_images": images} if images else {})}
    model, reference = network(), network()
    step = stepper(model, recipe_of(optimizer=optimizer))
    (batch,) = batches(1)
    figures = step.learn(batch, 0, step.statistics.copy(), 0.1)
    parameters = list(reference.parameters())
    starts = [p.detach().clone() for p in parameters]
    total = [torch.zeros_like(p) for p in parameters]
    count = 12 // (images or 12)
    for part in batch.cut(images or 12):
        climb = torch.autograd.grad(cross_entropy(reference, part)[0], parameters)
        norm = torch.stack([gradient.square().sum() for gradient in climb]).sum().sqrt()
        with torch.no_grad():
            for p, gradient in zip(parameters, climb, strict=True):
                p.add_(0.3 * gradient / norm)
        there = torch.autograd.grad(cross_entropy(reference, part)[0], parameters)
        with torch.no_grad():
            for p, start, sums, gradient in zip(parameters, starts, total, there, strict=True):
                p.copy_(start)
                sums.add_(gradient / count)
    for p, start, expected in zip(model.parameters(), starts, total, strict=True):
        assert p.grad is not None
        assert torch.equal(p.detach(), start)
        torch.testing.assert_close(p.grad, expected, rtol=2e-3, atol=2e-5)
    assert float(figures["loss"]) == pytest.approx(float(cross_entropy(reference, batch)[0].detach()), rel=1e-5)


def test_the_climb_is_as_far_as_the_rate_says() -> None:
    """At half of the peak's rate it is half way between the peak's radius and the end's (GSAM)."""
    optimizer = {"name": "sgd", "lr": 0.2, "sam_rho": 0.4, "sam_final_rho": 0.1}
    learned = []
    for settings, rate in ((optimizer, 0.1), ({"name": "sgd", "lr": 0.2, "sam_rho": 0.25}, 0.1), (optimizer, 0.2)):
        model = network()
        step = stepper(model, recipe_of(optimizer=settings, schedule={"final_lr": 0.0}))
        step.learn(batches(1)[0], 0, step.statistics.copy(), rate)
        learned.append(model.encoder[0].mlp.fc1.weight.grad.clone())
    torch.testing.assert_close(learned[0], learned[1])
    assert not torch.allclose(learned[0], learned[2], rtol=1e-3)


def test_a_method_knows_its_context() -> None:
    context = Context(("cat", "dog"))
    recipe = recipe_of()
    assert Supervised(network(), recipe, SINGLE_LABEL, context).context is context
    assert Supervised(network(), recipe, SINGLE_LABEL).context == Context()


def test_the_processes_bring_their_gradients_together_once_with_the_last_part() -> None:
    step = stepper(network(), recipe_of(compute={"accumulation": 3}))
    told: list[bool] = []

    class Engine:
        call = staticmethod(step.engine.call)

        def accumulating(self, *, last: bool) -> contextlib.AbstractContextManager[None]:
            told.append(last)
            return contextlib.nullcontext()

    step.engine = Engine()  # type: ignore[assignment]
    (batch,) = batches(1)
    step.gradients(batch, step=0)
    assert told == [False, False, True]
    told.clear()
    step.gradients(batch, step=0, together=False)
    assert told == [False] * 3


def test_a_batch_is_mixed_by_the_step_that_learns_from_it() -> None:
    seen: list[Tensor] = []

    class Watched(Supervised):
        def loss(self, call: Callable[..., Any], part: Part) -> tuple[Tensor, dict[str, Tensor]]:
            seen.append(part.images.clone())
            return super().loss(call, part)

    step = stepper(network(), recipe_of(mixing={"mixup": 0.8}), Watched)
    batch = dataclasses.replace(batches(1, size=13)[0], partner=True)
    for number in (4, 4, 5):
        step.gradients(batch, step=number)
    assert torch.equal(seen[0], seen[1])
    assert torch.equal(seen[0], step.prepare(batch, 4).images)
    assert torch.equal(seen[2], step.prepare(batch, 5).images)
    assert not torch.equal(seen[0], seen[2])
