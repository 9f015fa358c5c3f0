"""Other classes leave a trained head of regions as it is, but for the layer that tells them."""

import dataclasses

import torch

from tests.cases import every_case
from tests.conftest import TINY
from vitral.models.dense.dense_model import HEADS, DenseConfig, DenseModel, with_region_head
from vitral.models.dense.ridge import RidgeHeadConfig
from vitral.models.families import build

BACKBONE = dataclasses.replace(TINY, depth=4)


def trained(kind: str, num_classes: int = 3) -> DenseModel:
    """Return a network none of whose values is as it was drawn."""
    head = RidgeHeadConfig(directions=4) if kind == "ridge" else HEADS[kind][0]()
    model = build(DenseConfig(backbone=BACKBONE, head=head, num_classes=num_classes, image_size=(16, 16)), seed=0)
    assert isinstance(model, DenseModel)
    with torch.no_grad():
        for value in model.state_dict().values():
            value.copy_(value + torch.rand(value.shape) if value.is_floating_point() else value + 7)
    return model


@every_case("kind", list(HEADS))
@every_case("classes", [3, 5])
def test_new_classes_leave_the_rest_of_a_head(kind: str, classes: int) -> None:
    model = trained(kind)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    replaced = with_region_head(model, HEADS[kind][0](), classes, seed=1)
    assert replaced is model
    after = model.state_dict()
    assert after.keys() == before.keys()
    changed = {name for name, value in after.items() if not torch.equal(value, before[name])}
    assert changed == {name for name in before if "classifier" in name}
    assert changed
    assert model.config.num_classes == classes
    assert dataclasses.replace(model.config, num_classes=3) == trained(kind).config


def test_layers_as_wide_as_the_classes_are_many_are_drawn_where_these_are_more() -> None:
    model = trained("rims")
    narrow = {name: value.clone() for name, value in model.head.state_dict().items()}
    model.replace_head(40, seed=1)
    other = {name for name, value in model.head.state_dict().items() if value.shape != narrow[name].shape}
    assert {name.split(".")[0] for name in other} == {"joins", "classifier", "first"}
    kept = {name for name, value in model.head.state_dict().items() if torch.equal(value, narrow[name])}
    assert kept == {name for name in narrow if name not in other and "classifier" not in name} - {"first.classifier"}
    assert all(torch.isfinite(value).all() for value in model.head.state_dict().values())
