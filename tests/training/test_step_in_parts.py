"""A step that takes its batch in parts: weighed, drawn, cut and pinned as the whole."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.cases import every_case
from tests.training.test_step import PLAIN, batches, cross_entropy, network, normalize, recipe_of, stepper
from vitral.data.batch import Batch
from vitral.models.layers import BatchPart
from vitral.tasks.single_label import SINGLE_LABEL
from vitral.training.methods.supervised import Supervised
from vitral.training.methods.views import Part, Seen


@every_case("share", [1.0, 0.25])
def test_gradients_add_up_in_their_share(share: float) -> None:
    model, reference = network(), network()
    step = stepper(model, recipe_of(compute={"accumulation": 3}))
    first, second = batches(2)
    figures = step.gradients(first, step=0, share=share)
    step.gradients(second, step=0, share=share, together=False)
    losses = [cross_entropy(reference, batch)[0] for batch in (first, second)]
    ((losses[0] + losses[1]) * share).backward()  # type: ignore[no-untyped-call]
    for one, other in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-3, atol=1e-5)
    assert float(figures["loss"]) == pytest.approx(float(losses[0].detach()), rel=1e-5)
    assert not figures["loss"].requires_grad


def test_a_batch_in_uneven_parts_weighs_every_image_alike() -> None:
    seen: list[tuple[int, int, int]] = []

    class Watched(Supervised):
        def loss(self, call: Callable[..., Any], part: Part) -> tuple[Tensor, dict[str, Tensor]]:
            seen.append((len(part.images), part.of_batch.first, part.of_batch.total))
            value = part.images.mean() + 0 * call(part.images, part.of_batch).logits.sum()
            return value, {"accuracy": value.detach()}

    step = stepper(network(), recipe_of(compute={"accumulation": 5}), Watched)
    (batch,) = batches(1)
    figures = step.gradients(batch, step=0)
    assert seen == [(3, 0, 12), (3, 3, 12), (3, 6, 12), (3, 9, 12)]
    expected = float(normalize(batch.images).double().mean())
    assert float(figures["loss"]) == pytest.approx(expected, rel=1e-5)
    assert float(figures["accuracy"]) == pytest.approx(expected, rel=1e-5)
    seen.clear()
    step = stepper(network(), recipe_of(compute={"accumulation": 2}), Watched)
    (batch,) = batches(1, size=7)
    figures = step.gradients(batch, step=0)
    assert [count for count, _, _ in seen] == [4, 3]
    assert float(figures["loss"]) == pytest.approx(float(normalize(batch.images).double().mean()), rel=1e-5)


def test_a_part_of_a_batch_loses_its_branches_as_in_the_whole() -> None:
    model = network(dataclasses.replace(PLAIN, stochastic_depth=0.5, depth=6))
    method = Supervised(model, recipe_of(), SINGLE_LABEL)
    images, labels, part = torch.randn(4, 3, 8, 8), torch.arange(4), BatchPart(5, 9)
    losses = []
    for of_batch in (part, BatchPart(0, 4)):
        torch.manual_seed(0)
        losses.append(
            float(method.loss(method.module, Part((Seen(images, images.byte(), labels),), of_batch))[0].detach())
        )
    torch.manual_seed(0)
    logits = model.outputs(images, part).logits.detach()
    assert losses[0] == pytest.approx(float(-logits.log_softmax(dim=1)[torch.arange(4), labels].mean()), rel=1e-5)
    assert losses[0] != losses[1]


def test_a_batch_is_cut_with_its_partner_its_views_and_its_further_images() -> None:
    numbers = torch.arange(8)
    pixels = numbers.to(torch.uint8)[:, None, None, None].expand(8, 3, 2, 2)
    extra = Batch(pixels[:6], numbers[:6], numbers[:6], first=100, whole=200)
    batch = Batch(pixels, numbers, numbers + 50, 20, 40, True, (pixels + 100,), (0.1, 0.2), {"more": extra})
    assert len(batch) == 7
    assert batch.total == 40
    assert Batch(pixels, numbers, numbers).total == 8
    parts = list(batch.cut(3))
    assert [len(part) for part in parts] == [3, 3, 1]
    for part, start in zip(parts, (0, 3, 6), strict=True):
        held = list(range(start, min(start + 3, 7) + 1))
        assert part.images[:, 0, 0, 0].tolist() == part.labels.tolist() == held
        assert part.indices.tolist() == [number + 50 for number in held]
        assert part.more[0][:, 0, 0, 0].tolist() == [number + 100 for number in held]
        assert (part.first, part.whole, part.partner, part.erasing) == (20 + start, 40, True, (0.1, 0.2))
    further = [part.extra["more"] for part in parts]
    assert [part.labels.tolist() for part in further] == [[0, 1], [2, 3], [4, 5]]
    assert [(part.first, part.whole) for part in further] == [(100, 200), (102, 200), (104, 200)]


def test_everything_that_travels_is_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tensor, "pin_memory", lambda tensor: tensor + 1)
    numbers = torch.arange(3)
    pixels = torch.zeros(3, 3, 2, 2, dtype=torch.uint8)
    extra = Batch(pixels, numbers, numbers)
    pinned = Batch(pixels, numbers, numbers, 4, 9, more=(pixels,), extra={"more": extra}).pin_memory()
    assert pinned.labels.tolist() == pinned.extra["more"].labels.tolist() == [1, 2, 3]
    assert int(pinned.images.min()) == int(pinned.more[0].min()) == int(pinned.extra["more"].images.min()) == 1
    assert (pinned.first, pinned.whole, list(pinned.extra)) == (4, 9, ["more"])
