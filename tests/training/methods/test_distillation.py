"""A teacher sees what its student sees, answers in the student's classes, and may not be exchanged in the middle."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.cases import every_case
from tests.training.conftest import CONFIG, Run
from vitral.classifier import folder
from vitral.classifier.classifier import Classifier
from vitral.errors import ModelError, RecipeError, TrainingError, WeightsError
from vitral.events import Event, Message
from vitral.images.preprocessing import PHOTOS, Preprocessing
from vitral.models.families import build
from vitral.models.layers import BatchPart
from vitral.objectives.classification import hard_loss, soft_loss
from vitral.tasks.multi_label import MULTI_LABEL
from vitral.tasks.single_label import SINGLE_LABEL
from vitral.training.methods.distillation import Distillation
from vitral.training.methods.method import Context
from vitral.training.methods.teachers import Teacher, columns
from vitral.training.methods.views import Part, Seen
from vitral.training.request import Request
from vitral.training.settings.recipe import build_recipe

NAMES = tuple(map(str, range(10)))
OTHER = dataclasses.replace(PHOTOS, mean=(0.4, 0.5, 0.6), std=(0.2, 0.25, 0.3))


def saved(
    path: Path, *, preprocessing: Preprocessing = PHOTOS, size: int = 8, names: tuple[str, ...] = NAMES, seed: int = 5
) -> Path:
    """A teacher's folder, whose head is not the zeros of a new one."""
    model = build(dataclasses.replace(CONFIG, image_size=(size, size), num_classes=len(names)), seed=seed)
    torch.nn.init.normal_(model.head.weight, generator=torch.Generator().manual_seed(seed))
    return folder.save(Classifier(model, preprocessing.with_size((size, size)), names), path)


def pixels() -> torch.Tensor:
    return torch.randint(0, 256, (6, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def part() -> Part:
    seen = Seen(PHOTOS.normalize(pixels()), pixels(), torch.arange(6))
    return Part((seen,), BatchPart(0, 6))


def method(teacher: Path, *, distilled: bool = False, context: Context | None = None, **changes: Any) -> Distillation:  # noqa: ANN401
    settings = {"name": "distillation", "teacher": str(teacher), **changes}
    recipe = build_recipe({"steps": 10, "method": settings}, "test")
    model = build(dataclasses.replace(CONFIG, distilled=distilled, dropout=0.0), seed=1).train()
    for head in filter(None, (model.head, getattr(model, "distillation_head", None))):
        torch.nn.init.normal_(head.weight, std=0.1, generator=torch.Generator().manual_seed(3))
    return Distillation(model, recipe, SINGLE_LABEL, context or Context(NAMES, PHOTOS.normalize))


def test_a_teacher_of_another_normalisation_sees_the_same_images(tmp_path: Path) -> None:
    teacher = Teacher(
        str(saved(tmp_path / "t", preprocessing=OTHER)), build(CONFIG, seed=0), Context(NAMES, PHOTOS.normalize)
    )
    torch.testing.assert_close(
        teacher.images(PHOTOS.normalize(pixels())), OTHER.normalize(pixels()), rtol=1e-5, atol=1e-5
    )


def test_a_teacher_of_another_size_sees_the_same_images_resized(tmp_path: Path) -> None:
    teacher = Teacher(str(saved(tmp_path / "t", size=16)), build(CONFIG, seed=0), Context(NAMES, PHOTOS.normalize))
    flat = torch.full((2, 3, 8, 8), 0.25)
    assert torch.allclose(teacher.images(flat), torch.full((2, 3, 16, 16), 0.25))
    assert teacher.logits(flat).shape == (2, 10)


def test_a_teacher_answers_as_when_it_predicts_and_learns_nothing(tmp_path: Path) -> None:
    path = saved(tmp_path / "t")
    learned = method(path)
    teacher = learned.teacher
    teacher.network.train()  # as a loop may put every module that it finds
    expected = folder.read(path).predictor.logits(PHOTOS.normalize(pixels()))
    torch.testing.assert_close(teacher.logits(PHOTOS.normalize(pixels())), expected)
    assert not any(value.requires_grad for value in teacher.network.parameters())
    inside = {id(value) for value in learned.module.parameters()}
    assert not any(id(value) in inside for value in teacher.network.parameters())


@every_case("weight", [0.1, 0.5, 1.0])
@every_case("answers", ["hard", "soft"])
def test_one_head_learns_from_labels_and_teacher(tmp_path: Path, answers: str, weight: float) -> None:
    heat: dict[str, Any] = {"temperature": 3.0} if answers == "soft" else {}
    learned = method(saved(tmp_path / "t"), answers=answers, weight=weight, **heat)
    loss, figures = learned.loss(learned.module, part())
    ours, theirs = learned.network(part().images), learned.teacher.logits(part().images)
    taught = hard_loss(ours, theirs) if answers == "hard" else soft_loss(ours, theirs, 3.0)
    labelled = torch.nn.functional.cross_entropy(ours, torch.arange(6))
    assert float(loss.detach()) == pytest.approx(float(((1 - weight) * labelled + weight * taught).detach()), rel=1e-5)
    assert figures.keys() == {"accuracy", "agreement"}


def test_of_two_heads_one_learns_from_the_labels_and_one_from_the_teacher(tmp_path: Path) -> None:
    learned = method(saved(tmp_path / "t"), distilled=True)
    outputs, theirs = learned.network.outputs(part().images), learned.teacher.logits(part().images)
    assert outputs.distillation_logits is not None
    labelled = torch.nn.functional.cross_entropy(outputs.logits, torch.arange(6))
    expected = (labelled + hard_loss(outputs.distillation_logits, theirs)) / 2
    loss, _ = learned.loss(learned.module, part())
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)


def test_a_head_that_would_learn_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="class token's head .* would learn nothing"):
        method(saved(tmp_path / "t"), distilled=True, weight=1.0)


def test_classes_are_matched_by_name(tmp_path: Path) -> None:
    more = ("x", *reversed(NAMES), "y")
    events: list[Event] = []
    learned = method(
        saved(tmp_path / "t", names=more), context=Context(NAMES, PHOTOS.normalize, events.append), answers="soft"
    )
    every = learned.teacher.network(learned.teacher.images(part().images))
    ours = learned.network(part().images)
    own = torch.stack([every[:, more.index(name)] for name in NAMES], dim=1)
    labelled = torch.nn.functional.cross_entropy(ours, torch.arange(6))
    loss, _ = learned.loss(learned.module, part())
    assert float(loss.detach()) == pytest.approx(float((labelled + soft_loss(ours, own, 1.0)).detach() / 2), rel=1e-5)
    said = [event.text for event in events if isinstance(event, Message)]
    assert any("12 classes, of which 10 are matched by name" in text for text in said)


def test_a_teacher_of_other_classes_is_refused_side_by_side(tmp_path: Path) -> None:
    path = saved(tmp_path / "t", names=(*NAMES[:9], "ten"))
    with pytest.raises(
        ModelError, match="does not know all classes.*Only the data have 9; only the classifier has ten"
    ):
        method(path)


def test_a_teacher_without_names_has_the_same_classes_in_the_same_order() -> None:
    model = build(CONFIG, seed=0)
    unnamed = Classifier(model, PHOTOS.with_size((8, 8)))
    assert columns(unnamed, NAMES, "weights.npz") is None
    with pytest.raises(ModelError, match="10 classes without names, the data have 3"):
        columns(unnamed, NAMES[:3], "weights.npz")


def test_bad_teachers_and_settings(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="no file or folder"):
        method(tmp_path / "gone")
    with pytest.raises(RecipeError, match="temperature belongs to soft answers"):
        method(tmp_path, temperature=2.0)
    with pytest.raises(RecipeError, match="lacks 'method.teacher'; set it"):
        build_recipe({"steps": 1, "method": {"name": "distillation"}}, "test")
    recipe = build_recipe(
        {"steps": 1, "method": {"name": "distillation", "teacher": str(saved(tmp_path / "t"))}}, "test"
    )
    with pytest.raises(ModelError, match="one class each"):
        Distillation(build(CONFIG, seed=0), recipe, MULTI_LABEL, Context(NAMES, PHOTOS.normalize))


def test_a_teacher_that_gives_an_image_several_classes_is_refused(tmp_path: Path) -> None:
    learned = Classifier(build(CONFIG, seed=5), PHOTOS.with_size((8, 8)), NAMES, task=MULTI_LABEL)
    with pytest.raises(ModelError, match="one class each"):
        method(folder.save(learned, tmp_path / "t"))


def test_a_run_does_not_go_on_with_another_teacher(run: Run, tmp_path: Path) -> None:
    path = saved(tmp_path / "t")
    settings: dict[str, Any] = {"method": {"name": "distillation", "teacher": str(path)}}
    run.train(**settings)
    saved(path, seed=6)
    with pytest.raises(TrainingError, match="began with another teacher"):
        run.train(resume=True, **(settings | {"steps": 40}))


def test_a_teachers_path_is_kept_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path / "a teacher")
    (tmp_path / "more").mkdir()
    monkeypatch.chdir(tmp_path)
    paths = ("method.teacher=a teacher", "method.unlabelled=unlabelled:more", "method.tree=gone.tsv")
    request = Request("fine-tune", "digits", overrides=(*paths, "optimizer.lr=0.1"))
    there = tmp_path.resolve()
    assert request.overrides == (
        f"method.teacher={there / 'a teacher'}",
        f"method.unlabelled=unlabelled:{there / 'more'}",
        "method.tree=gone.tsv",
        "optimizer.lr=0.1",
    )
    published = ("method.teacher=vit-b16@augreg-in21k", "method.unlabelled=digits")
    assert Request("fine-tune", "digits", overrides=published).overrides == published
