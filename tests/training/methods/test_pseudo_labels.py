"""Noisy Student and Meta Pseudo Labels on the digits: who learns from what, and when."""

import dataclasses
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from tests.cases import every_case
from tests.cli.conftest import write_images
from tests.training.conftest import CONFIG, Run
from tests.training.methods.test_distillation import saved
from vitral.classifier import folder
from vitral.classifier.classifier import Classifier
from vitral.data.batch import Batch
from vitral.data.generated import open_digits
from vitral.data.open import open_data
from vitral.errors import DataError, ImageError, ModelError
from vitral.events import Event, Message, ignore
from vitral.images.preprocessing import PHOTOS
from vitral.models.families import build
from vitral.objectives.pseudo_labels import choose_balanced
from vitral.tasks.multi_label import MULTI_LABEL
from vitral.tasks.single_label import SINGLE_LABEL
from vitral.training.methods.meta_pseudo_labels import MetaPseudoLabels
from vitral.training.methods.method import Context, open_further, training_batches
from vitral.training.methods.noisy_student import NoisyStudent
from vitral.training.optimization.optimizers import set_learning_rate
from vitral.training.settings.recipe import Recipe, build_recipe
from vitral.training.step import Step

NAMES = tuple(map(str, range(10)))
CONTEXT = Context(NAMES, PHOTOS.normalize)
PLAIN = dataclasses.replace(CONFIG, dropout=0.0)
State = Mapping[str, torch.Tensor]


def noisy(teacher: Path, **changes: Any) -> Recipe:  # noqa: ANN401
    method = {"name": "noisy-student", "teacher": str(teacher), "unlabelled": "digits", "ratio": 0.5, **changes}
    return build_recipe({"steps": 10, "batch_size": 8, "workers": 0, "method": method}, "test")


def meta(**changes: Any) -> Recipe:  # noqa: ANN401
    method = {"name": "meta-pseudo-labels", "unlabelled": "digits", "ratio": 1.0, "uda_steps": 4, "magnitude": 5.0}
    values = {"steps": 10, "batch_size": 8, "workers": 0, "precision": "fp32", "optimizer": {"lr": 0.01}}
    return build_recipe({**values, "method": {**method, "student_wait": 2, **changes}}, "test")


def batches(recipe: Recipe) -> Any:  # noqa: ANN401
    data = open_digits()
    return training_batches(
        data.splits["train"], recipe, image_size=(8, 8), augmentation=data.augmentation, listener=ignore
    )


def weights(network: torch.nn.Module) -> State:
    return {name: value.detach().clone() for name, value in network.state_dict().items()}


def moved(before: State, network: torch.nn.Module) -> bool:
    return any(not torch.equal(before[name], value) for name, value in network.state_dict().items())


def test_a_noisy_student_learns_from_the_images_that_its_teacher_is_sure_of(tmp_path: Path) -> None:
    recipe = noisy(saved(tmp_path / "t"), confidence=0.2, per_class=30)
    events: list[Event] = []
    train = open_digits().splits["train"]
    chosen = open_further(recipe, NAMES, listener=events.append)["unlabelled"].splits["train"]
    teacher = NoisyStudent(build(PLAIN, seed=1), recipe, SINGLE_LABEL, CONTEXT).teacher
    preprocess = teacher.classifier.preprocessing
    logits = torch.cat([teacher.network(preprocess(train.image(index))[None]).detach() for index in range(len(train))])
    expected = choose_balanced(logits.softmax(dim=1).numpy(), confidence=0.2, per_class=30, seed=recipe.seed)
    assert [chosen.describe(index) for index in range(len(chosen))] == [train.describe(int(one)) for one in expected]
    said = [event.text for event in events if isinstance(event, Message)]
    assert any("The teacher answers" in text for text in said)
    assert any(f"that is {len(expected):,}." in text for text in said)


def test_a_noisy_student_learns_labels_and_answers_of_unvaried_images(tmp_path: Path) -> None:
    recipe = noisy(saved(tmp_path / "t"), confidence=0.0, ratio=2.0)
    method = NoisyStudent(build(PLAIN, seed=1).train(), recipe, SINGLE_LABEL, CONTEXT)
    step = Step(method, recipe, PHOTOS.normalize)
    part = step.prepare(batches(recipe).batch(0), 0)
    whole, varied = part.extra["unlabelled"].views
    assert len(whole.images) == 16
    assert not torch.equal(whole.images, varied.images)
    loss, figures = method.loss(method.module, part)
    labelled = functional.cross_entropy(method.network(part.images), part.targets)
    taught = method.teacher.logits(whole.images).softmax(dim=1)
    told = -(taught * method.network(varied.images).log_softmax(dim=1)).sum(dim=1).mean()
    assert float(loss.detach()) == pytest.approx(float((labelled + 2.0 * told).detach()), rel=1e-5)
    assert figures.keys() == {"accuracy", "agreement"}


def test_what_a_noisy_student_refuses(tmp_path: Path) -> None:
    undecided = folder.save(Classifier(build(PLAIN, seed=1), PHOTOS.with_size((8, 8)), NAMES), tmp_path / "undecided")
    with pytest.raises(DataError, match=r"sure of none of the .* images of digits above 0\.2"):
        open_further(noisy(undecided, confidence=0.2), NAMES)
    with pytest.raises(ModelError, match="does not know all classes"):
        open_further(noisy(saved(tmp_path / "o", names=(*NAMES[:9], "ten"))), NAMES)
    with pytest.raises(DataError, match="endless"):
        open_further(noisy(tmp_path / "t", unlabelled="visualatom"), NAMES)
    recipe = noisy(tmp_path / "t")
    with pytest.raises(ModelError, match="one class each"):
        NoisyStudent(build(PLAIN, seed=1), recipe, MULTI_LABEL, CONTEXT)
    with pytest.raises(ModelError, match="second head"):
        NoisyStudent(build(dataclasses.replace(PLAIN, distilled=True), seed=1), recipe, SINGLE_LABEL, CONTEXT)


def test_damaged_files_among_images_without_labels_are_named(tmp_path: Path) -> None:
    write_images(tmp_path / "photos", {"red": 4, "green": 4})
    shutil.copytree(tmp_path / "photos", tmp_path / "more")
    (tmp_path / "more" / "red" / "broken.jpg").write_bytes(b"\xff\xd8\xff no photo")
    recipe = noisy(saved(tmp_path / "t"), unlabelled=f"unlabelled:{tmp_path / 'more'}")
    with pytest.raises(ImageError, match=r"broken\.jpg"):
        open_further(recipe, NAMES, skip_bad_images=False)
    left = open_further(
        noisy(saved(tmp_path / "t2"), unlabelled=f"unlabelled:{tmp_path / 'more'}", confidence=0.0),
        NAMES,
        skip_bad_images=True,
    )
    assert len(left["unlabelled"].bad_images) == 1
    assert open_data(str(tmp_path / "photos")).class_names == ("green", "red")


def test_the_student_waits_while_the_teacher_learns() -> None:
    recipe = meta(student_wait=2)
    method = MetaPseudoLabels(build(PLAIN, seed=1).train(), recipe, SINGLE_LABEL, CONTEXT)
    step, source = Step(method, recipe, PHOTOS.normalize), batches(recipe)
    student, teacher = method.module.student, method.module.teacher
    assert not moved(weights(student), teacher)  # both begin alike
    for number in range(4):
        before, taught = weights(student), weights(teacher)
        assert step(source.batch(number), number, 0.01, 0.01).finite
        assert moved(before, student) == (number >= 2)
        assert moved(taught, teacher)
    assert int(method.updates) == 4


def rates(folder: Path, monkeypatch: pytest.MonkeyPatch, recipe: dict[str, Any]) -> list[tuple[float, float]]:
    """Return the learning rates of student and teacher at each update of a run."""
    found: list[tuple[float, float]] = []
    after_step = MetaPseudoLabels.after_step

    def noted(self: MetaPseudoLabels, step: int) -> None:
        pair = (self.student_optimizer, self.teacher_optimizer)
        found.append(tuple(optimizer.param_groups[0]["lr"] for optimizer in pair))
        after_step(self, step)

    monkeypatch.setattr(MetaPseudoLabels, "after_step", noted)
    method = {"name": "meta-pseudo-labels", "unlabelled": "digits", "ratio": 1.0, "student_wait": 12, "magnitude": 5.0}
    Run(folder).train(method=method, averaging={"decay": None}, optimizer={"lr": 0.01}, **recipe)
    return found


def curve(step: float, total: float, warmup: int = 5) -> float:
    """The rate of `get_learning_rate` of the released code with "cosine"; its warm-up is one update ahead of ours."""
    if step < 0:
        return 0.0
    if step < warmup:
        return 0.01 * step / warmup
    return 0.01 * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))


def test_after_its_wait_the_student_warms_up_and_falls_over_the_rest_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = rates(tmp_path / "run", monkeypatch, {})
    assert len(found) == 30
    for step, (student, teacher) in enumerate(found):
        assert student == pytest.approx(curve(step - 12, 30 - 12), abs=1e-12), step
        assert teacher == pytest.approx(curve(step, 30), abs=1e-12), step
    assert max(student for student, _ in found) == pytest.approx(0.01)


def test_a_shorter_run_shortens_the_students_wait_and_its_curve_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = rates(tmp_path / "run", monkeypatch, {"schedule": {"warmup_steps": 5, "bends": [[6, 18]]}})
    assert len(found) == 18
    for step, (student, teacher) in enumerate(found):
        position = step if step <= 6 else 30 * (6 / 30 + (1 - 6 / 30) * (step - 6) / (18 - 6))
        assert student == pytest.approx(curve(position - 12, 30 - 12), abs=1e-12), step
        assert teacher == pytest.approx(curve(position, 30), abs=1e-12), step


def with_labels(batch: Batch, labels: torch.Tensor) -> Batch:
    return dataclasses.replace(batch, labels=labels)


def test_the_student_never_learns_a_label() -> None:
    after = []
    for turn in (0, 3):
        recipe = meta(student_wait=0)
        method = MetaPseudoLabels(build(PLAIN, seed=1).train(), recipe, SINGLE_LABEL, CONTEXT)
        batch = batches(recipe).batch(0)
        Step(method, recipe, PHOTOS.normalize)(with_labels(batch, (batch.labels + turn) % 10), 0, 0.01, 0.01)
        after.append((weights(method.module.student), weights(method.module.teacher)))
    assert all(torch.equal(value, after[1][0][name]) for name, value in after[0][0].items())
    assert any(not torch.equal(value, after[1][1][name]) for name, value in after[0][1].items())


@every_case("helped", [True, False])
def test_the_teacher_makes_labels_more_probable_that_helped_and_others_less(helped: bool) -> None:
    recipe = meta(student_wait=0, uda_weight=0.0, baseline=0.99)
    method = MetaPseudoLabels(build(PLAIN, seed=1).train(), recipe, SINGLE_LABEL, CONTEXT)
    step = Step(method, recipe, PHOTOS.normalize)
    part = step.prepare(batches(recipe).batch(0), 0)
    method.loss(method.module, part)
    (kept,) = method._remembered
    now = functional.cross_entropy(method.module.student(part.images), part.targets)
    assert float(kept.before) == pytest.approx(float(now.detach()), rel=1e-5)
    # What the student's loss was before is said to be far higher, or lower, than it is after; the teacher learns no labels.
    before = torch.tensor(10.0 if helped else -10.0)
    method._remembered = [dataclasses.replace(kept, before=before, own=0.0 * kept.own)]
    strong = part.extra["unlabelled"].views[1].images

    def chance() -> float:
        with torch.no_grad():
            said = method.module.teacher(strong).log_softmax(dim=1)
        return float(said[torch.arange(len(strong)), kept.drawn].mean())

    likely = chance()
    for optimizer in step.optimizers:
        set_learning_rate(optimizer, 0.01, 0.01)
    method.after_step(0)
    assert (chance() > likely) == helped
    gained = float(before) - float(now.detach())
    assert float(method.average_progress) == pytest.approx(0.01 * gained, rel=1e-4)


def test_a_teacher_without_finite_numbers_spoils_the_update() -> None:
    recipe = meta(student_wait=0)
    method = MetaPseudoLabels(build(PLAIN, seed=1).train(), recipe, SINGLE_LABEL, CONTEXT)
    step, source = Step(method, recipe, PHOTOS.normalize), batches(recipe)
    with torch.no_grad():
        next(iter(method.module.teacher.parameters())).fill_(torch.nan)
    before = weights(method.module.student)
    assert not step(source.batch(0), 0, 0.01, 0.01).finite
    assert not moved(before, method.module.student)


def test_where_an_update_is_skipped_nothing_of_it_is_learned_later() -> None:
    recipe = meta()
    method = MetaPseudoLabels(build(PLAIN, seed=1).train(), recipe, SINGLE_LABEL, CONTEXT)
    step = Step(method, recipe, PHOTOS.normalize)
    part = step.prepare(batches(recipe).batch(0), 0)
    method.loss(method.module, part)
    method.loss(method.module, part)
    assert len(method._remembered) == 1


def test_parts_of_a_batch_teach_what_the_whole_does() -> None:
    found = []
    for parts in (1, 2):
        recipe = meta(student_wait=0).with_changes({"compute.accumulation": parts, "optimizer.name": "sgd"})
        method = MetaPseudoLabels(build(PLAIN, seed=1).train(), recipe, SINGLE_LABEL, CONTEXT)
        begun, begun_too = weights(method.module.student), weights(method.module.teacher)
        Step(method, recipe, PHOTOS.normalize)(batches(recipe).batch(0), 0, 0.1, 0.1)
        assert moved(begun, method.module.student)
        assert moved(begun_too, method.module.teacher)
        found.append(method)
    ours, theirs = (dict(method.module.named_parameters()) for method in found)
    differences = {name: float((value - theirs[name]).detach().abs().max()) for name, value in ours.items()}
    assert max(differences.values()) < 1e-5


def test_what_meta_pseudo_labels_refuse() -> None:
    network = build(PLAIN, seed=1)
    sharp = meta().with_changes({"optimizer.sam_rho": 0.05})
    with pytest.raises(ModelError, match="SAM does not fit"):
        MetaPseudoLabels(network, sharp, SINGLE_LABEL, CONTEXT)
    with pytest.raises(ModelError, match="one class each"):
        MetaPseudoLabels(network, meta(), MULTI_LABEL, CONTEXT)
    with pytest.raises(ModelError, match=r"waits for 3,000 updates, and the run has 10.*method\.student_wait"):
        MetaPseudoLabels(network, meta(student_wait=3000), SINGLE_LABEL, CONTEXT)


def test_the_student_is_delivered(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    method = {"name": "meta-pseudo-labels", "unlabelled": "digits", "ratio": 1.0, "student_wait": 2, "magnitude": 5.0}
    model, result = run.train(method=method, averaging={"decay": None})
    assert result.steps == 30
    assert np.isfinite([row["loss"] for row in result.history if "loss" in row]).all()
    assert model is run.model
