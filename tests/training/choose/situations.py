"""What the tests plan for: a thousand images of ten classes, ViT-Ti/16 and a laptop's CPU, or a large GPU."""

from dataclasses import fields, replace
from typing import Any

from vitral.images.augment import Augmentation
from vitral.models.catalog import variant
from vitral.tasks.single_label import SINGLE_LABEL
from vitral.training.choose.decide import decide
from vitral.training.choose.draft import draft_of
from vitral.training.facts import DataFacts, Facts, MachineFacts, WeightsFacts
from vitral.training.plan import Plan
from vitral.training.request import Request

FACTS = Facts(
    data=DataFacts(
        images=1000, an_epoch=1000, classes=10, task=SINGLE_LABEL, augmentation=Augmentation(flip=False), side=400.0
    ),
    machine=MachineFacts(macs_per_second=5e10),
)
WEIGHTS = WeightsFacts(variant("vit-ti16"), parameters=5_500_000, macs=1_250_000_000, blocks=12, low_rank=True)
LAPTOP = replace(FACTS, weights=WEIGHTS)
SERVER = replace(LAPTOP, machine=MachineFacts(gpu_bytes=80 << 30))


def changed(facts: Facts, **values: Any) -> Facts:  # noqa: ANN401
    """Return facts with other values of data, weights, machine or budget, by their names; an epoch is all images."""
    if "images" in values:
        values = {"an_epoch": values["images"], **values}
    rooms: dict[str, Any] = {}
    for name in ("data", "weights", "machine"):
        room = getattr(facts, name)
        names = () if room is None else (field.name for field in fields(room))
        rooms[name] = (
            room if room is None else replace(room, **{key: values.pop(key) for key in names if key in values})
        )
    return replace(facts, **rooms, **values)


def planned(facts: Facts = FACTS, kind: str = "fine-tune", *, spent: float = 0.0, **request: Any) -> Plan:  # noqa: ANN401
    """Return the plan of a command for some photos, that took so many seconds before."""
    given = Request(kind, "photos", **request)
    return decide(draft_of(given), facts.at(spent, given.budget_seconds))
