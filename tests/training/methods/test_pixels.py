"""A step of classes of pixels: the mean cross-entropy and the share of right pixels, of logits that are enlarged once."""

from typing import Any

import pytest
import torch
from torch.nn import functional

from tests.cases import every_case
from tests.tasks.scenes import Random, class_map
from vitral.models.catalog import variant
from vitral.models.dense.dense_model import DenseConfig
from vitral.models.dense.head import HeadConfig
from vitral.models.dense.linear import LinearHeadConfig
from vitral.models.dense.ridge import RidgeHeadConfig
from vitral.models.families import build
from vitral.models.layers import BatchPart
from vitral.tasks.regions import VOID, Regions, RegionTargets
from vitral.tasks.semantic import SEMANTIC
from vitral.training.methods.supervised import Supervised
from vitral.training.methods.views import Part, Seen
from vitral.training.settings.recipe import build_recipe


@every_case(("head", "enlarged"), [(LinearHeadConfig(), 1), (RidgeHeadConfig(stride=1), 0)])
def test_logits_are_enlarged_and_targets_painted_once_a_step(
    head: HeadConfig, enlarged: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = DenseConfig(backbone=variant("vit-nano4"), head=head, num_classes=4, image_size=(32, 32))
    model, random, generator = build(config, seed=0), Random(0), torch.Generator().manual_seed(0)
    torch.nn.init.normal_(model.head.classifier.weight, generator=generator)  # type: ignore[union-attr, arg-type]
    truths = tuple(Regions.of_map(class_map(random, (32, 32), 4, void=True)) for _ in range(3))
    images = torch.randn(3, 3, 32, 32, generator=generator)
    recipe = build_recipe({"objective": {"name": "task"}, "regularization": {"label_smoothing": 0.1}}, "test")
    method = Supervised(model, recipe, SEMANTIC)

    def logits_of(images: torch.Tensor, part: BatchPart) -> Any:  # noqa: ANN401  # Outputs
        outputs = method.module(images, part)
        given.append(outputs.logits)
        outputs.logits.retain_grad()
        return outputs

    def counting(*args: Any, **named: Any) -> Any:  # noqa: ANN401  # of whatever function
        calls.append(args)
        return interpolate(*args, **named)

    def painting(regions: Regions) -> Any:  # noqa: ANN401
        painted.append(regions)
        return paint(regions)

    given: list[torch.Tensor] = []
    calls: list[Any] = []
    painted: list[Regions] = []
    interpolate, paint = functional.interpolate, Regions.class_map
    monkeypatch.setattr(Regions, "class_map", painting)
    part = Part((Seen(images, images.byte(), RegionTargets(truths)),), BatchPart(0, 3))  # type: ignore[arg-type]
    monkeypatch.setattr(functional, "interpolate", counting)
    method.module(images, part.of_batch)
    own = len(calls)  # of the network itself
    calls.clear()
    loss, figures = method.loss(logits_of, part)
    loss.backward()  # type: ignore[no-untyped-call]
    assert (len(calls) - own, len(painted)) == (enlarged, 3)
    labels = torch.stack([torch.from_numpy(paint(truth)) for truth in truths])
    logits = given[0].detach().requires_grad_()
    large = interpolate(logits, size=(32, 32), mode="bilinear")
    losses = functional.cross_entropy(large, labels, ignore_index=VOID, label_smoothing=0.1, reduction="sum")
    theirs = losses / (labels != VOID).sum()
    theirs.backward()  # type: ignore[no-untyped-call]
    assert torch.equal(loss, theirs)
    assert torch.equal(given[0].grad, logits.grad)  # type: ignore[arg-type]
    right = (large.argmax(dim=1) == labels)[labels != VOID].float().mean()
    assert figures["accuracy"] == right
