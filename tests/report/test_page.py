"""The page as text: whole, escaped, self-contained, and honest about what is missing."""

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.cases import every_case
from vitral.data.source import BadImage
from vitral.errors import StorageError
from vitral.evaluation.baselines import Baselines
from vitral.explanation.network import AttentionDistance
from vitral.report.page import render_report, write_report
from vitral.report.plots import confusion_plot, shown_confusion
from vitral.report.results import AttentionImage, CaptionedImage, Curve, CurveGroup, RunReport, Verdict
from vitral.tasks.metrics import Evaluation, evaluate_probabilities
from vitral.tasks.shown import MOST_ROWS, ConfusionMatrix, percent, worst_first

EVIL = "<script>alert('x')</script>"
NAMES = (EVIL, "$cat_1^2", "猫", 'a"b\' onload="alert(1)', "--><b>", "dog", "</svg><img src=x>")


def evaluation(names: tuple[str, ...] = NAMES) -> Evaluation:
    """Make scores with some mistakes."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(len(names) - 1, (80,), generator=generator)
    logits = torch.randn(80, len(names), generator=generator)
    logits[torch.arange(80), labels] += 3.0
    logits[:, -1] -= 100.0
    files = [f"photos/{EVIL}/{index}.jpg" for index in range(80)]
    return evaluate_probabilities(logits.softmax(dim=1), labels, class_names=names, descriptions=files)


def full_report() -> RunReport:
    """Make a report with everything in it, all texts hostile."""
    scores = evaluation()
    pixels = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    rows = [{"step": step, "loss": 2 / (step + 1), "accuracy": step / 300} for step in range(300)]
    rows += [{"step": step, "validation/loss": 1.0, "validation/accuracy": 0.5} for step in (100, 200)]
    shown = [
        AttentionImage(
            pixels, pixels, mistake.truth, mistake.predicted, mistake.probability, mistake.description, right=False
        )
        for mistake in scores.mistakes
    ]
    return RunReport(
        title=EVIL,
        facts=(("Model", "vit-ti4"), (EVIL, EVIL)),
        summary=EVIL,
        command=f"vitral finetune --data '{EVIL}'",
        notes=(EVIL,),
        bad_images=tuple(BadImage(f"{index}{EVIL}", EVIL) for index in range(30)),
        images=(CaptionedImage(pixels, EVIL),),
        curves=(
            CurveGroup(EVIL, (Curve(EVIL, rows),)),
            CurveGroup("Arms", (Curve("a", rows), Curve("a", rows), Curve(EVIL, rows[:1]))),
            CurveGroup("Nothing logged", (Curve("none", []),)),
        ),
        baselines=Baselines(knn=0.8, linear_probe=0.85, split="test", num_train=100, num_test=80),
        evaluation=scores,
        mistakes=tuple(shown),
        examples=tuple(shown[:1]),
        patch_filters=np.random.default_rng(0).random((28, 4, 4, 3), dtype=np.float32),
        position_similarity=np.eye(6, dtype=np.float32).reshape(2, 3, 2, 3),
        attention_distance=AttentionDistance(((3.0, 4.0), (5.0, 6.0)), 8, (16, 16)),
    )


@pytest.fixture(scope="module")
def page() -> str:
    """Render the full report once."""
    return render_report(full_report())


def test_nothing_of_the_users_becomes_markup(page: str) -> None:
    tags: list[tuple[str, list[str]]] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            tags.append((tag, [name for name, _ in attrs]))

    Reader().feed(page)
    assert len(tags) > 500
    assert not [tag for tag, _ in tags if tag in ("script", "iframe", "object", "embed", "form", "base", "link")]
    assert not [names for _, names in tags if any(name.startswith("on") for name in names)]
    assert not [names for tag, names in tags if tag == "img" and "alt" not in names]
    assert "&lt;script&gt;" in page


def test_the_page_fetches_nothing(page: str) -> None:
    assert "http" not in page.replace("http-equiv", "")
    for address in re.findall(r"""(?:src|href)\s*=\s*["']([^"']*)""", page):
        assert address.startswith(("data:image/", "#"))
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)
    assert "default-src 'none'" in page


def test_ids_are_unique_and_links_lead_somewhere(page: str) -> None:
    ids = re.findall(r'\sid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    for target in re.findall(r'href="#([^"]+)"', page) + re.findall(r"url\(#([^)]+)\)", page):
        assert target in ids


def test_every_image_has_a_text(page: str) -> None:
    for tag in re.findall(r"<img [^>]*>", page):
        assert re.search(r'alt="[^"]+"', tag)
    for tag in re.findall(r"<svg[^>]*>", page):
        assert "aria-label=" in tag or "aria-hidden" in tag


def test_every_part_is_there(page: str) -> None:
    for part in ("facts", "images", "curves", "baselines", "scores", "mistakes", "attention", "inside"):
        assert f'<section id="{part}">' in page
    assert "30 photos were left out" in page
    assert "and 10 more" in page


def test_a_class_without_images_shows_a_dash(page: str) -> None:
    scores = evaluation()
    assert scores.recall[-1] is None
    assert '<td class="number">–</td><td class="number">–</td><td class="number">0</td>' in page


def test_photos_come_before_figures(page: str) -> None:
    parts = re.findall(r'<section id="(\w+)">', page)
    assert parts.index("mistakes") < parts.index("attention") < parts.index("scores") < parts.index("curves")
    found = evaluation()
    counts = {word: int(number) for number, word in re.findall(r"<b>(\d+)</b> (?:of these )?(\w+)", page)}
    right = sum(count for truth, predicted, count in found.confusion if truth == predicted)
    assert counts == {"right": right, "wrong": 80 - right, "unsure": sum(found.unsure)}


def test_nothing_is_drawn_of_a_single_point() -> None:
    row = {"step": 1, "loss": 1.0, "validation/accuracy": 0.5, "learning_rate": 0.1}
    sure = evaluate_probabilities(torch.eye(2), torch.arange(2), class_names=["a", "b"], descriptions=["x", "y"])
    page = render_report(
        RunReport(
            title="x",
            facts=(),
            curves=(CurveGroup("Run", (Curve("run", [row]),)),),
            evaluation=sure,
        )
    )
    assert 'id="curves"' not in page
    assert re.findall(r'<svg role="img" aria-label="(\w+)', page) == ["Confusion"]


def test_a_page_of_scores_says_nothing_of_training() -> None:
    page = render_report(RunReport(title="x", facts=(("Data", "photos"),), evaluation=evaluation()))
    assert "trained" not in page


def test_the_least_report_has_no_empty_parts() -> None:
    page = render_report(RunReport(title="Least", facts=(("Model", "vit-ti4"),)))
    assert re.findall(r'<section id="(\w+)">', page) == ["facts"]


@every_case("num_classes", [2, 26, 27, 300, 4000])
def test_any_number_of_classes_stays_small(num_classes: int) -> None:
    names = tuple(f"class {index}" for index in range(num_classes))
    page = render_report(RunReport(title="Classes", facts=(), evaluation=evaluation(names)))
    assert len(page) < 600_000


def test_a_perfect_run_has_no_mistakes_to_show() -> None:
    scores = evaluate_probabilities(
        torch.eye(3), torch.arange(3), class_names=["a", "b", "c"], descriptions=["x", "y", "z"]
    )
    page = render_report(RunReport(title="Perfect", facts=(), evaluation=scores))
    assert "100.0%" in page
    assert "taken for" not in page


def test_photos_are_made_small(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (1500, 2000, 3), dtype=np.uint8)
    shown = AttentionImage(noise, noise, "a", "b", 0.9, "x.jpg", right=False)
    report = RunReport(title="Photos", facts=(), images=(CaptionedImage(noise, "noise"),), mistakes=(shown,) * 24)
    write_report(report, tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size < 3_000_000


def test_a_file_name_that_is_no_text_is_written_all_the_same(tmp_path: Path) -> None:
    name = b"x\xe9y\x07".decode("utf-8", "surrogateescape")
    scores = evaluation((name, "b", "c"))
    report = RunReport(title=name, facts=(("Data", name),), evaluation=scores)
    write_report(report, tmp_path / "report.html")
    assert r"x\xe9y\x07" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_an_unwritable_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="report.html"):
        write_report(RunReport(title="x", facts=()), tmp_path / "file" / "report.html")


def test_the_same_report_gives_the_same_page(page: str) -> None:
    assert render_report(full_report()) == page


def test_percentages() -> None:
    assert percent(0.98061) == "98.1%"
    assert percent(1.0, 2) == "100.00%"
    assert percent(None) == "–"
    assert percent(float("nan")) == "–"


def test_worst_classes_come_first_and_those_without_images_last() -> None:
    assert worst_first([0.5, None, 0.0, 0.5, 1.0], [3, 0, 2, 9, 1]) == [2, 3, 0, 4, 1]
    assert len(worst_first([0.5] * 4000, [1] * 4000)) == MOST_ROWS
    scores = evaluation()
    page = render_report(RunReport(title="x", facts=(), evaluation=scores))
    table = page[page.index("Every class, the worst first") :]
    recalls = [float(share) for share in re.findall(r'</bdi></th><td class="number">([\d.]+)%', table)]
    assert len(recalls) > 3
    assert recalls == sorted(recalls)


def test_the_most_confused_pairs_are_shown_with_images() -> None:
    scores = evaluation()
    pixels = np.zeros((30, 20, 3), dtype=np.uint8)
    images = {index: pixels for pair in scores.confused[:12] for index in pair.examples}
    page = render_report(RunReport(title="x", facts=(), evaluation=scores, example_images=images))
    assert page.count('class="examples"><img') == min(12, len(scores.confused))
    without = render_report(RunReport(title="x", facts=(), evaluation=scores))
    assert "Most often confused" in without
    assert "<img" not in without


@every_case("num_classes", [2, 26, 27, 100, 4000])
def test_the_confusion_matrix_has_names_whatever_the_number_of_classes(num_classes: int) -> None:
    names = tuple(f"name{index}" for index in range(num_classes))
    scores = evaluation(names)
    matrix = scores.drawings()[0]
    assert isinstance(matrix, ConfusionMatrix)
    shown = shown_confusion(matrix)
    drawn = confusion_plot(matrix)
    assert drawn is not None
    assert all(f">{names[index]}<" in drawn for index in shown.classes)
    assert len(shown.classes) == num_classes if num_classes <= 26 else 15 <= len(shown.classes) <= 20
    assert (">others<" in drawn) == shown.others == (num_classes > 26)
    support = [scores.support[index] for index in shown.classes]
    assert shown.counts.sum(axis=1).tolist() == support
    if shown.others:
        recalls = [scores.recall[index] for index in shown.classes]
        assert recalls == sorted(recalls, key=lambda recall: recall or 0.0)
        wrong = [cell for cell in scores.confusion if cell[0] != cell[1]]
        worst = max(wrong, key=lambda cell: cell[2])
        assert worst[0] in shown.classes


def test_the_learning_rate_has_its_curve() -> None:
    rows = [{"step": step, "loss": 1.0, "learning_rate": step / 1000} for step in range(9)]
    curves = (CurveGroup("Run", (Curve("run", rows),)),)
    page = render_report(RunReport(title="x", facts=(), curves=curves))
    assert 'aria-label="learning rate by step: training"' in page
    assert page.count("<figure") == 2


def test_few_shot_figures_have_a_curve_for_each_number_of_images() -> None:
    rows = [
        {
            "step": step,
            "validation/few_shot_10": 0.4,
            "validation/few_shot_5": 0.3,
            "validation/few_shot_5_deviation": 0.1,
        }
        for step in (10, 20)
    ]
    page = render_report(RunReport(title="x", facts=(), curves=(CurveGroup("Run", (Curve("run", rows),)),)))
    five, ten = (page.index(f'aria-label="{shots}-shot accuracy by step: validation"') for shots in (5, 10))
    assert five < ten
    assert page.count("<figure") == 2


def test_the_verdict_stands_above_all() -> None:
    page = render_report(
        RunReport(
            title="Title",
            facts=(("Model", "x"),),
            verdict=(Verdict(f"Failed {EVIL}", "Why.", f"vitral {EVIL}"), Verdict("Worse")),
            summary="Summary",
        )
    )
    assert page.index("</h1>") < page.index("Failed &lt;script&gt;") < page.index("Summary")
    assert "<code>vitral &lt;script&gt;" in page
    assert page.count('class="verdict"') == 2
    assert 'class="verdict"' not in render_report(RunReport(title="Title", facts=()))


def test_names_written_from_right_to_left_do_not_turn_the_page() -> None:
    names = ("\u202eevil", "קטה", "c")
    page = render_report(RunReport(title="x", facts=(), evaluation=evaluation(names)))
    body = page[page.index("<main>") :]
    for name in names[:2]:
        bare = re.sub(rf"<bdi>{name}</bdi>|<text[^>]*>[^<]*</text>", "", body)
        assert name not in bare
