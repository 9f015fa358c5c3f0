"""How a dialect reads a file: what is counted, what is left out, its own description, and how it is refused."""

import json

import pytest

from tests.cases import every_case
from vitral.errors import VitralError, WeightsError
from vitral.images.preprocessing import ORIGINAL, PHOTOS
from vitral.models.catalog import variant
from vitral.tasks.multi_label import MULTI_LABEL
from vitral.tasks.single_label import SINGLE_LABEL
from vitral.tasks.task import Task
from vitral.weights.dialect import (
    NO_HEAD,
    Reading,
    Stored,
    Usage,
    broken,
    cannot_hold,
    described,
    our_names,
    reading,
    self_description,
    square_side,
)
from vitral.weights.layouts import rule

CONFIG = variant("vit-ti16")
DISTILLED = variant("deit-ti16-distilled")
RULES = [
    rule("norm.weight", "a"),
    rule("head.weight", "b"),
    rule("head.bias", "c"),
    rule("distillation_head.bias", "d"),
]


def test_numbers_in_names_are_counted_once_each() -> None:
    shapes = dict.fromkeys(["blocks.0.a", "blocks.0.b", "blocks.11.a", "blocks.x.a", "more.blocks.3.a"], (1,))
    stored = Stored("file", "file.npz", shapes)
    assert stored.count(r"blocks\.(\d+)\.") == 2
    assert stored.count(r"(?:more\.)?blocks\.(\d+)") == 3
    assert stored.count(r"stages\.(\d+)") == 0
    assert stored.stages(r"blocks\.{}\.(\w)") == (2,)
    assert stored.stages(r"blocks\.{}\.(\w)", first=11) == (1,)


def test_a_file_with_a_head_is_read_with_all_its_rules() -> None:
    stored = Stored("file", "file.npz", {"b": (2, 192)})
    found = reading(stored, CONFIG, RULES, Usage(PHOTOS, ("ape", "bee"), ("a note",)))
    assert found == Reading(CONFIG, RULES, PHOTOS, ("ape", "bee"), (), ("a note",))
    assert reading(stored, CONFIG, RULES, Usage(PHOTOS)) == Reading(CONFIG, RULES, PHOTOS, None, (), ())


@every_case(
    ("config", "absent"),
    [
        (CONFIG, ("head.weight", "head.bias")),
        (DISTILLED, ("head.weight", "head.bias", "distillation_head.weight", "distillation_head.bias")),
    ],
)
def test_without_a_head_its_rules_are_left_out_and_a_note_says_so(config: object, absent: tuple[str, ...]) -> None:
    stored = Stored("file", "file.npz", {"a": (192,), "c": (2,)})
    found = reading(stored, config, RULES, Usage(PHOTOS, ("ape",), ("a note",)))  # type: ignore[arg-type]
    assert found.rules == RULES[:1]
    assert sorted(found.absent) == sorted(absent)
    assert found.notes == ("a note", NO_HEAD)
    assert (found.config, found.preprocessing, found.class_names) == (config, PHOTOS, ("ape",))
    assert found.task == SINGLE_LABEL
    assert NO_HEAD == "The file has no head: its predictions mean nothing until it is fine-tuned."


def test_our_names_are_those_of_a_state_without_counters() -> None:
    names = our_names(CONFIG)
    assert {"class_token", "head.weight", "encoder.0.norm1.weight"} <= set(names)
    assert not any("num_batches_tracked" in name for name in our_names(variant("resnet-18")))
    assert "root_norm.running_mean" in our_names(variant("resnet-18"))


@every_case(("tokens", "side"), [(1, 1), (4, 2), (196, 14), (576, 24)])
def test_a_square_has_a_side(tokens: int, side: int) -> None:
    assert square_side(tokens) == side


@every_case("tokens", [2, 197, 195])
def test_what_is_not_square_is_refused_with_its_number(tokens: int) -> None:
    with pytest.raises(ValueError, match=f"has {tokens} rows, which is not a square grid; .*image_size="):
        square_side(tokens)


def test_refusals_name_the_format_the_file_and_what_is_wrong() -> None:
    stored = Stored("some/file.npz", "file.npz", {})
    assert all(fact in str(cannot_hold("timm", "registers")) for fact in ("'timm'", "registers"))
    for error, what in ((KeyError("norm.weight"), "it lacks 'norm.weight'."), (ValueError("it is odd."), "it is odd.")):
        assert str(broken(stored, error)).startswith("'some/file.npz' ")
        assert str(broken(stored, error)).endswith(f": {what}")
    assert str(broken(stored, ValueError("it is of width X."))).endswith(": it is of width X.")
    assert isinstance(broken(stored, ValueError()), WeightsError)


@every_case("task", [SINGLE_LABEL, MULTI_LABEL])
def test_a_files_description_overrides_what_its_names_suggest(task: Task) -> None:
    text = self_description(CONFIG, PHOTOS, ["ape", "bee"], task=task)
    found = Reading(CONFIG, RULES, ORIGINAL, None, ("head.bias",), ("a guess",))
    told = described(found, text)
    assert told == Reading(CONFIG, RULES, PHOTOS, ("ape", "bee"), ("head.bias",), (), task)
    assert json.loads(self_description(CONFIG, PHOTOS, []))["task"] == "single-label"


def test_a_description_of_an_earlier_version_says_whether_an_image_may_have_several_labels() -> None:
    said = json.loads(self_description(CONFIG, PHOTOS, ["ape"]))
    found = Reading(CONFIG, RULES, ORIGINAL)
    del said["task"]
    assert described(found, json.dumps(said)).task == SINGLE_LABEL
    assert described(found, json.dumps({**said, "multi_label": True})).task == MULTI_LABEL
    for value in (None, 1, "true"):
        with pytest.raises(VitralError, match="neither true nor false"):
            described(found, json.dumps({**said, "multi_label": value}))


def test_a_description_of_another_model_is_refused() -> None:
    text = self_description(DISTILLED, PHOTOS, ["ape"])
    with pytest.raises(ValueError, match="^its description is of another model than its tensors$"):
        described(Reading(CONFIG, RULES, ORIGINAL), text)
