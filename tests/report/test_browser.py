"""The pages in a real browser: every image shows, nothing is fetched or sticks out of a narrow window, axe finds nothing."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.chromium import BROWSER, Chromium
from tests.report.experiments import experiment
from vitral.checks.doubtful import Doubtful, DoubtfulLabels
from vitral.checks.findings import DataCheck, Doubts, Duplicates, Finding, Suspect
from vitral.data.source import BadImage
from vitral.explanation.explain import Explanation
from vitral.explanation.faithfulness import Faithfulness
from vitral.explanation.gallery import Gallery, GalleryEntry
from vitral.explanation.nearest import Neighbour
from vitral.explanation.network import AttentionDistance, NetworkAnalysis
from vitral.images.drawing import contact_sheet
from vitral.report.experiment_page import write_experiment, write_study
from vitral.report.page import render_report
from vitral.report.pages import write_check_page, write_fix_page, write_gallery, write_network
from vitral.report.results import AttentionImage, CaptionedImage, Curve, CurveGroup, RunReport, Verdict
from vitral.report.score_table import Column, Score, ScoreTable
from vitral.tasks.metrics import evaluate_probabilities

PROBE = """(() => {
  const images = [...document.images], drawn = [...document.querySelectorAll("img, figure > svg")];
  return {
    images: images.length,
    broken: images.filter((image) => image.naturalWidth === 0).length,
    flat: drawn.filter((it) => it.getBoundingClientRect().height < 20).length,
    fetched: performance.getEntriesByType("resource").filter((it) => !it.name.startsWith("data:")).length,
  };
})()"""
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with Chromium(tmp_path_factory.mktemp("profile")) as running:
        yield running


def report() -> RunReport:
    """Make a report of every kind of drawing, with long names."""
    names = [f"a rather long class name, number {index}" for index in range(10)]
    names += ["שם של מחלקה " * 9, "\u202e</td>" + "verylong" * 20]
    generator = torch.Generator().manual_seed(0)
    probabilities = torch.randn(60, 12, generator=generator).softmax(dim=1)
    labels = torch.randint(12, (60,), generator=generator)
    files = [f"photos/{'very-long-folder-name/' * 8}{index}.jpg" for index in range(60)]
    scores = evaluate_probabilities(probabilities, labels, class_names=names, descriptions=files)
    pixels = np.random.default_rng(0).integers(0, 256, (90, 60, 3), dtype=np.uint8)
    shown = AttentionImage(pixels[:8, :8], pixels, names[0], names[1], 0.9, files[0], right=False)
    return RunReport(
        title="A run",
        facts=(("Fingerprint", "0123456789abcdef" * 8),),
        command="vitral finetune --data photos " + "--set optimizer.lr=0.01 " * 8,
        curves=(
            CurveGroup(
                "Run", (Curve("run", [{"step": step, "loss": 1.0, "learning_rate": 1e-5} for step in range(9)]),)
            ),
        ),
        images=(CaptionedImage(contact_sheet([pixels] * 9, names[:9]), "Training images"),),
        following=(("vitral predict " + "very-long-folder-name/" * 8, "Say what is in images."),),
        plan=("Chosen for 120 photos:", "  photos at 224 pixels"),
        plan_title="Why it was trained so",
        verdict=(Verdict("No better than chance.", "with-a-long-word-" * 12, "vitral " + "--set a=b " * 30),),
        evaluation=scores,
        example_images={index: pixels for pair in scores.confused for index in pair.examples},
        mistakes=(shown,) * 3,
        examples=(shown,),
        patch_filters=np.zeros((28, 4, 4, 3), dtype=np.float32),
        position_similarity=np.eye(16, dtype=np.float32).reshape(4, 4, 4, 4),
    )


def seen(browser: Chromium, page: str, folder: Path, *, dark: bool = False) -> dict[str, Any]:
    """Return what a browser makes of a page in a narrow window."""
    path = folder / "seen.html"
    path.write_text(page, encoding="utf-8")
    browser.be(500, 900, dark=dark)
    browser.open(path.as_uri(), ready="true")
    return {**browser.run(PROBE), "overhang": browser.overhang(), "violations": browser.violations()}


def whole(images: int) -> dict[str, Any]:
    return {"images": images, "broken": 0, "flat": 0, "fetched": 0, "overhang": 0, "violations": []}


@needs_browser
@pytest.mark.parametrize("dark", [False, True])
def test_the_page_in_a_narrow_window(browser: Chromium, tmp_path: Path, dark: bool) -> None:
    scores = report().evaluation
    assert scores is not None
    examples = sum(len(pair) for table in scores.tables() for pair in table.examples)
    assert seen(browser, render_report(report()), tmp_path, dark=dark) == whole(examples + 10)


@needs_browser
def test_a_gallery_in_a_narrow_window(browser: Chromium, tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (90, 160, 3), dtype=np.uint8)
    labels = ("verylong" * 20, "שם של מחלקה " * 9)
    grid = np.eye(3, dtype=np.float32)
    explanation = Explanation(
        *(pixels, (0, 0, 90, 160), labels[0], 0.4, ((labels[1], 0.5), (labels[0], 0.4)), grid, "Grad-CAM"),
        faithfulness=Faithfulness(0.1, 0.9, (), ()),
        nearest=tuple(Neighbour("a/b.jpg", labels[index % 2], 0.5, pixels) for index in range(5)),
    )
    entries = tuple(GalleryEntry("very-long-folder-name/" * 9, explanation, pixels, truth) for truth in (None, *labels))
    gallery = Gallery(entries, 9, worst_first=True, unreadable=("x",), warning="No better than chance.")
    write_gallery(gallery, tmp_path / "gallery.html", title="photos/" * 40, classifier="runs/" * 40)
    assert seen(browser, (tmp_path / "gallery.html").read_text(), tmp_path) == whole(3 * 7)


@needs_browser
def test_a_networks_analysis_in_a_narrow_window(browser: Chromium, tmp_path: Path) -> None:
    distance = AttentionDistance(((1.0, 2.0),) * 24, 128, (224, 224))
    similarity = np.eye(256, dtype=np.float32).reshape(16, 16, 16, 16)
    filters = np.zeros((28, 16, 16, 3), dtype=np.float32)
    analysis = NetworkAnalysis("vit-b16", filters, similarity, distance, ("There is none.",), "No better than chance.")
    write_network(analysis, tmp_path / "out", classifier="runs/" * 40)
    # An image inside of an SVG, the similarities', is none of the page's own.
    assert seen(browser, (tmp_path / "out" / "index.html").read_text(), tmp_path) == whole(1)


@needs_browser
@pytest.mark.parametrize("paper_chart", [True, False])
def test_a_study_of_the_papers_in_a_narrow_window(browser: Chromium, tmp_path: Path, paper_chart: bool) -> None:
    page = experiment(" with-a-long-word" + "-as-no-other" * 12, paper_chart=paper_chart)
    write_experiment(page, tmp_path / "experiment.html")
    assert seen(browser, (tmp_path / "experiment.html").read_text(), tmp_path) == whole(0)


NAME = "a-long-name-without-a-space/" * 6  # of a file, a class or a run


def table_page(path: Path) -> None:
    """Write a table of many models on two datasets."""
    scores = {name: Score(0.987, 0.0012, 3) for name in ("clothes", NAME)}
    columns = [Column(f"vit-b16, number {index}", NAME, scores, "Table 2" * (index % 2)) for index in range(12)]
    path.write_text(ScoreTable(("clothes", NAME), tuple(columns), (f"A note on {NAME}.",)).page())


def study_page(path: Path) -> None:
    """Write the page of a study of twelve arms."""
    write_study(experiment(NAME).study, path.with_suffix(".md"), path)


def check_page(path: Path) -> None:
    """Write the page of a data check that found everything there is to find."""
    pixels = np.random.default_rng(0).integers(0, 256, (90, 160, 3), dtype=np.uint8)
    names = tuple(f"{NAME}{index}.jpg" for index in range(6))
    splits, classes = ("train",) * 3 + ("test",) * 3, ("hat", NAME) * 3
    check = DataCheck(
        name=NAME,
        fingerprint="0123456789abcdef" * 4,
        class_names=("hat", NAME),
        counts={split: {"hat": 90, NAME: 3} for split in ("train", "validation", "test")},
        images={"train": 93, "validation": 93, "test": 93},
        unlabelled={"train": 1, "validation": 0, "test": 0},
        bad=(BadImage(names[0], "It is cut off."),),
        suspicious=(Finding(names[1], "It is 3 x 900 pixels, which is narrow."),),
        duplicates=(
            Duplicates("exact", names, splits, classes),
            Duplicates("near", names[:2], splits[:2], classes[:2]),
        ),
        doubts=Doubts(279, 0.9, 4, (Suspect(names[2], "train", "hat", NAME, 0.93, 0.02),)),
        widths=(3, 400, 4000),
        heights=(90, 400, 3000),
        formats={"JPEG": 250, "PNG": 29},
        size=123_456_789,
        mean=(0.5, 0.4, 0.3),
        std=(0.2, 0.2, 0.2),
        notes=(f"A note on {NAME}.",),
        sheet=contact_sheet([pixels] * 9, [NAME] * 9),
        thumbnails=dict.fromkeys(zip(splits, names, strict=True), pixels),
    )
    write_check_page(check, [("Images of a class", NAME)], path)


def fix_page(path: Path) -> None:
    """Write the page on which labels are corrected, one of its photos too damaged to be shown."""
    pixels = np.random.default_rng(0).integers(0, 256, (200, 120, 3), dtype=np.uint8)
    labels = tuple(Doubtful(f"{NAME}{index}.jpg", "hat", NAME, 0.9) for index in range(3))
    found = DoubtfulLabels(NAME, ("hat", NAME, "shoe"), labels, 2, 0.9, (pixels, pixels, None))
    write_fix_page(found, f"vitral fix {NAME} --apply corrections.csv", path)


@needs_browser
@pytest.mark.parametrize(("write", "images"), [(table_page, 0), (study_page, 0), (check_page, 10), (fix_page, 2)])
def test_a_page_of_long_names_in_a_narrow_window(
    browser: Chromium, tmp_path: Path, write: Callable[[Path], None], images: int
) -> None:
    write(tmp_path / "page.html")
    assert seen(browser, (tmp_path / "page.html").read_text(), tmp_path) == whole(images)
