"""From a run to its page: what a network at chance shows, and what a good one does."""

import dataclasses

import numpy as np
import pytest
import torch
from PIL import Image

from vitral.classifier.metadata import Provenance
from vitral.cli.command_line import SPEECH
from vitral.events import ignore
from vitral.report.page import render_report
from vitral.studies.finetune import finetune
from vitral.studies.run_report import ALWAYS, examples, mistakes, run_report
from vitral.tasks.metrics import Evaluation, evaluate_probabilities
from vitral.training.candidates.result import RunResult
from vitral.training.request import Request
from vitral.training.scoring.diagnosis import Diagnosis


@pytest.fixture(scope="module", params=["vit-mu16", "resnet-18"])
def result(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    """Train a network for one step, with attention and without."""
    folder = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (folder / name).mkdir()
        for number in range(20):
            pixels = rng.integers(0, 256, (32, 48, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return finetune(
        folder,
        source=request.param,
        image_size=32,
        overrides=["steps=1", "batch_size=4", "workers=0"],
        out=tmp_path_factory.mktemp("runs") / "run",
        baselines=False,
        listener=ignore,
    )


def scored(result: RunResult, accuracy: float) -> RunResult:
    """Give a run scores of that accuracy on as many images as its split has, as if it had earned them."""
    labels = torch.tensor(result.run.data.splits[result.split].labels())
    wrong = round((1 - accuracy) * len(labels))
    predicted = torch.cat([1 - labels[:wrong], labels[wrong:]])
    files = [f"{index}.png" for index in range(len(labels))]
    scores = evaluate_probabilities(torch.eye(2)[predicted], labels, class_names=("cat", "dog"), descriptions=files)
    kept = {f"{result.split}/{name}": value for name, value in scores.scores().items()}
    result.classifier.provenance = Provenance(training={"steps": 1}, scores=kept)
    diagnosis = (Diagnosis("No better than chance.", "Few images.", Request("fine-tune")),) if scores.at_chance else ()
    return dataclasses.replace(result, evaluation=scores, diagnosis=diagnosis)


def test_a_network_at_chance_is_called_so_and_shows_no_attention(result: RunResult) -> None:
    report = run_report(scored(result, 0.0))  # of four images one half would be too few to tell
    assert isinstance(report.evaluation, Evaluation)
    assert report.evaluation.at_chance
    assert [verdict.problem for verdict in report.verdict] == ["No better than chance."]
    assert report.examples == ()
    assert report.mistakes
    assert all(shown.overlay is None for shown in report.mistakes)
    assert report.attention_distance is None
    assert report.position_similarity is None
    assert report.patch_filters is None
    page = render_report(report)
    assert 'id="attention"' not in page
    assert 'id="inside"' not in page


def test_problems_of_one_reason_and_command_are_one_box(result: RunResult) -> None:
    one = Diagnosis("Worse than chance.", "Few images.", Request("fine-tune"))
    other = dataclasses.replace(one, problem="Worse than its probe.")
    report = run_report(dataclasses.replace(scored(result, 0.5), diagnosis=(one, other)))
    assert [verdict.problem for verdict in report.verdict] == ["Worse than chance. Worse than its probe."]
    assert render_report(report).count('class="verdict"') == 1


def test_a_good_network_shows_where_it_looked(result: RunResult) -> None:
    report = run_report(scored(result, 1.0))
    assert report.verdict == ()
    assert report.examples
    assert all(shown.overlay is not None for shown in report.examples)
    attentive = report.method == "class-specific relevance"
    assert attentive == (report.attention_distance is not None)
    assert ("class-specific relevance:" in render_report(report)) == attentive


def test_some_maps_are_drawn_although_no_time_is_left(result: RunResult) -> None:
    good, poor = scored(result, 1.0), scored(result, 0.25)
    source = result.run.data.splits[result.split]
    assert 0 < len(examples(good.classifier, source, lambda: 0.0)) <= ALWAYS
    assert len(mistakes(poor.classifier, source, poor.evaluation, lambda: 0.0)) == ALWAYS
    assert len(mistakes(poor.classifier, source, poor.evaluation, lambda: 60.0)) == 3  # of four


def test_a_page_says_what_to_do_next(result: RunResult) -> None:
    commands = [command.split()[1] for command, _ in SPEECH.following(scored(result, 1.0))]
    assert commands == ["evaluate", "predict", "explain"]
    report = run_report(scored(result, 0.5), speech=SPEECH)
    assert [command.split()[1] for command, _ in report.following] == [*commands, "fix"]  # there are mistakes
    page = render_report(report)
    assert all(f"vitral {command}" in page for command in [*commands, "fix"])


def test_the_most_confused_pairs_come_with_their_images(result: RunResult) -> None:
    report = run_report(scored(result, 0.5))
    assert isinstance(report.evaluation, Evaluation)
    assert set(report.example_images) == {index for pair in report.evaluation.confused for index in pair.examples}
    source = result.run.data.splits[result.split]
    for index, image in report.example_images.items():
        np.testing.assert_array_equal(image, source.image(index))
