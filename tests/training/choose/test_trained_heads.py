"""A start that has a head of regions is trained further, with what its head is; what says otherwise is refused."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.cases import every_case
from tests.training.choose.situations import WEIGHTS, changed, planned
from tests.training.choose.test_regions import NETWORK, PLAIN, facts_of
from vitral.classifier.classifier import Classifier
from vitral.classifier.folder import save
from vitral.classifier.load import load
from vitral.cli.main import main
from vitral.data.digit_scenes import open_digit_scenes
from vitral.errors import ModelError
from vitral.images.preprocessing import PHOTOS
from vitral.models.catalog import variant
from vitral.models.dense.dense_model import HEADS, DenseConfig, DenseModel
from vitral.models.dense.head import HeadConfig
from vitral.models.dense.mask_decoder import MaskDecoderConfig
from vitral.models.dense.points import PointsHeadConfig
from vitral.models.dense.queries import QueryHeadConfig
from vitral.models.dense.rims import RimHeadConfig
from vitral.models.families import build
from vitral.training.plan import Plan
from vitral.training.starting.prepare import adapt_network

OURS = QueryHeadConfig(queries=7, joint_blocks=2)


def start(head: HeadConfig, classes: tuple[str, ...] = ("a", "b")) -> Classifier:
    config = DenseConfig(backbone=variant(NETWORK), head=head, num_classes=len(classes), image_size=(32, 32))
    return Classifier(build(config, seed=5), PHOTOS.with_size((32, 32)), classes)


def plan_from(begun: Classifier, name: str, *overrides: str) -> Plan:
    facts = dataclasses.replace(
        facts_of(name), weights=dataclasses.replace(WEIGHTS, config=begun.model.config, blocks=3)
    )
    return planned(changed(facts, budget_seconds=600.0), source="start", overrides=(*PLAIN, *overrides))


def plain() -> Classifier:
    network = build(dataclasses.replace(variant(NETWORK), num_classes=3), seed=0)
    return Classifier(network, PHOTOS.with_size((32, 32)), tuple("abc"))


def from_scratch(name: str, *overrides: str) -> Plan:
    return planned(facts_of(name), source=NETWORK, overrides=(*PLAIN, *overrides))


def adapted(begun: Classifier, name: str, plan: Plan) -> DenseModel:
    adapt_network(begun, open_digit_scenes(name), plan.recipe)
    assert isinstance(begun.model, DenseModel)
    return begun.model


@every_case(
    ("name", "head"),
    [
        ("digit-scenes", OURS),
        ("digit-scenes", MaskDecoderConfig(queries=7, blocks=2)),
        ("digit-scenes", RimHeadConfig(width=16)),
        ("digit-scenes-semantic", OURS),
        ("digit-scenes-semantic", HEADS["linear"][0]()),
        ("digit-scenes-panoptic", MaskDecoderConfig(queries=7, blocks=2)),
        ("digit-scenes-boxes", PointsHeadConfig(stride=4, width=16)),
    ],
)
def test_a_start_s_head_learns_on_as_it_is(name: str, head: Any) -> None:  # noqa: ANN401  # of any kind
    begun = start(head)
    before = {key: value.clone() for key, value in begun.model.state_dict().items()}
    plan = plan_from(begun, name)
    assert f"The start's head, {head.title}, learns on; the layer that tells its classes begins anew." in plan.reasons
    assert plan.recipe.method.name == ("mask-queries" if hasattr(head, "queries") else "supervised")
    model = adapted(begun, name, plan)
    assert model.config.head == head
    after = model.state_dict()
    assert all(torch.equal(value, after[key]) for key, value in before.items() if "classifier" not in key)


@every_case(
    ("name", "head", "overrides", "kind"),
    [
        ("digit-scenes", OURS, ("head.kind=rims",), "rims"),
        ("digit-scenes", OURS, ("method.name=supervised",), "rims"),
        ("digit-scenes", HEADS["linear"][0](), (), "rims"),
        ("digit-scenes", HEADS["rims"][0](), ("method.name=mask-queries",), "queries"),
        ("digit-scenes-semantic", HEADS["rims"][0](), (), "detail"),
    ],
)
def test_a_head_of_another_kind_gives_way_to_the_one_that_is_named(
    name: str, head: HeadConfig, overrides: tuple[str, ...], kind: str
) -> None:
    begun = start(head)
    plan = plan_from(begun, name, *overrides)
    assert f"The start's head, {head.title}, gives way to {HEADS[kind][0].title}." in plan.reasons
    assert adapted(begun, name, plan).config.head.kind == kind


@every_case(
    ("name", "head", "override"),
    [
        ("digit-scenes", OURS, "method.queries=9"),
        ("digit-scenes", OURS, "method.joint_blocks=3"),
        ("digit-scenes", MaskDecoderConfig(queries=7, blocks=2), "method.joint_blocks=3"),
        ("digit-scenes-boxes", PointsHeadConfig(stride=4), "head.stride=8"),
    ],
)
def test_what_a_start_s_head_has_otherwise_is_refused_in_one_line(name: str, head: Any, override: str) -> None:  # noqa: ANN401
    begun = start(head)
    method = ("method.name=mask-queries",) if override.startswith("method") else ()
    plan = plan_from(begun, name, *method, override)
    with pytest.raises(ModelError, match="its weights do not fit") as refusal:
        adapted(begun, name, plan)
    assert "\n" not in str(refusal.value)


@every_case(
    ("name", "queries"), [("digit-scenes", 200), ("digit-scenes-panoptic", 200), ("digit-scenes-semantic", 100)]
)
def test_a_new_head_has_as_many_queries_and_blocks_as_eomt_and_pmt(name: str, queries: int) -> None:
    for kind, blocks in (("queries", {"joint_blocks": 3}), ("mask-decoder", {"blocks": 6})):
        model = adapted(plain(), name, from_scratch(name, f"head.kind={kind}"))
        head = dataclasses.asdict(model.config.head)
        assert head["queries"] == queries
        assert blocks.items() <= head.items()
        few = from_scratch(name, f"head.kind={kind}", "method.name=mask-queries", "method.queries=5")
        assert dataclasses.asdict(adapted(plain(), name, few).config.head)["queries"] == 5


@pytest.mark.long
@pytest.mark.usefixtures("few_scenes")
def test_a_run_from_a_trained_head_of_queries_ends_with_that_head(tmp_path: Path) -> None:
    begun = start(OURS)
    begun.task = open_digit_scenes("digit-scenes-panoptic").task
    folder, run = save(begun, tmp_path / "start"), tmp_path / "run"
    settings = ("image_size=32", "batch_size=2", "steps=1", "optimizer.lr=1e-9", "optimizer.weight_decay=0")
    changes = [part for setting in settings for part in ("--set", setting)]
    given = ["finetune", "--data", "digit-scenes-panoptic", "--from", str(folder), "--out", str(run), "--no-baselines"]
    assert main([*given, *changes]) == 0
    model = load(run).model
    assert isinstance(model, DenseModel)
    assert model.config.head == OURS
    for name, value in begun.model.head.state_dict().items():
        if not name.startswith(("classifier.", "masking")):
            torch.testing.assert_close(model.head.state_dict()[name], value, rtol=0, atol=1e-6)
