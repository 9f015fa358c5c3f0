"""Table 2 of one's own runs: what counts as a repetition, the standard deviation, the paper's figures, the four forms."""

import json
import statistics
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.cases import every_case
from vitral.errors import StudyError
from vitral.evaluation.published import paper_dataset, paper_results
from vitral.models.catalog import variant
from vitral.models.families import config_to_json
from vitral.studies.paper_table import table
from vitral.training.settings.recipe import load_recipe

TEN = tuple(str(digit) for digit in range(10))


def write_run(
    folder: Path,
    score: float,
    *,
    seed: int = 0,
    model: str = "vit-b16",
    data: str = "cifar10",
    start: str = "",
    settings: tuple[str, ...] = (),
    classes: tuple[str, ...] = TEN,
    fingerprint: str = "a" * 64,
    where: Path | None = None,
) -> Path:
    """Write what a finished run leaves, but for weights."""
    (folder / "classifier").mkdir(parents=True)
    recipe = load_recipe("scratch", [f"seed={seed}", "steps=100", *settings])
    source = start or f"random weights ({model})"
    described = {
        "architecture": config_to_json(variant(model)),
        "class_names": list(classes),
        "task": "single-label",
        "provenance": {"source": source, "training": {}, "scores": {"test/top1": score, "test/baseline_knn": 0.1}},
    }
    (folder / "recipe.toml").write_text(recipe.to_toml())
    run: dict[str, Any] = {"kind": "fine-tune", "data": data, "data_fingerprint": fingerprint, "from": start or model}
    if where is not None:
        run |= {"request": {"where": str(where)}}
    (folder / "run.json").write_text(json.dumps(run))
    (folder / "evaluation.json").write_text(json.dumps({"num_examples": 10_000, "top1": score}))
    (folder / "classifier" / "classifier.json").write_text(json.dumps(described))
    return folder


def test_runs_that_differ_in_the_seed_alone_are_one_score(tmp_path: Path) -> None:
    scores = (0.912, 0.9, 0.921)
    runs = [write_run(tmp_path / f"run-{seed}", score, seed=seed) for seed, score in enumerate(scores)]
    found = table(*runs)
    assert found.datasets == ("CIFAR-10",)
    ours = found.columns[0].scores["CIFAR-10"]
    mean = sum(scores) / 3
    deviation = (sum((score - mean) ** 2 for score in scores) / 2) ** 0.5
    assert [ours.mean, ours.deviation] == pytest.approx([mean, deviation], abs=1e-12)
    assert ours.runs == 3
    assert found.rows()[0][1] == f"{100 * mean:.2f} ± {100 * statistics.stdev(scores):.2f}"
    assert any("3 runs, seeds 0, 1, 2; 10,000 test photos" in note for note in found.notes)
    assert not any("no standard deviation" in note for note in found.notes)


def test_one_run_claims_no_deviation(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", 0.9)
    found = table(run)
    assert found.columns[0].scores["CIFAR-10"].deviation is None
    assert found.rows()[0][1] == "90.00"
    assert any("One run has no standard deviation" in note for note in found.notes)
    twice = table(run, str(run), run / ".." / "run")
    assert twice.columns[0].scores["CIFAR-10"].runs == 1


def test_the_same_seed_twice_is_no_repetition(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name, score, seed=0) for name, score in {"a": 0.9, "b": 0.8}.items()]
    found = table(*runs)
    assert (found.columns[0].scores["CIFAR-10"].mean, found.columns[0].scores["CIFAR-10"].runs) == (0.9, 1)
    assert any("b repeats seed 0 of" in note for note in found.notes)


@every_case("setting", ["steps=200", "optimizer.lr=0.123"])
def test_other_settings_are_another_column_that_names_them(tmp_path: Path, setting: str) -> None:
    same = [write_run(tmp_path / f"a-{seed}", 0.9, seed=seed, settings=("workers=2",)) for seed in (0, 1)]
    other = write_run(tmp_path / "b", 0.8, seed=2, settings=(setting, "workers=0"))
    ours = [column for column in table(*same, other).columns if not column.source]
    assert [column.scores["CIFAR-10"].runs for column in ours] == [2, 1]
    assert setting in ours[1].start
    assert "workers" not in ours[1].start


def test_other_data_of_one_name_are_another_row(tmp_path: Path) -> None:
    write_run(tmp_path / "a", 0.9, data="photos", fingerprint="1" * 64)
    write_run(tmp_path / "b", 0.8, data="photos", fingerprint="2" * 64)
    found = table(tmp_path / "a", tmp_path / "b")
    assert found.datasets == ("photos (11111111)", "photos (22222222)")
    assert [row[1:] for row in found.rows()] == [["90.00"], ["80.00"]]


@every_case(("one", "other"), [("/tmp/sets/hands", "../sets/hands"), ("cifar10", "sets/CIFAR-10/")])
def test_one_dataset_named_in_two_ways_is_one_row(tmp_path: Path, one: str, other: str) -> None:
    write_run(tmp_path / "a", 0.9, data=one)
    write_run(tmp_path / "b", 0.8, data=other, seed=1)
    found = table(tmp_path / "a", tmp_path / "b")
    assert len(found.datasets) == 1
    assert found.rows()[0][1] == "85.00 ± 7.07"
    write_run(tmp_path / "c", 0.7, data=other, seed=2, settings=("steps=200",))
    apart = table(tmp_path / "a", tmp_path / "b", tmp_path / "c")
    assert apart.rows()[0][1:3] == ["85.00 ± 7.07", "70.00"], "each recipe keeps its score"


def test_one_start_typed_as_two_paths_is_one_column(tmp_path: Path) -> None:
    """Typed as a relative path, as an absolute one, through a link; beside it another of the same relative path."""
    (tmp_path / "starts" / "good").mkdir(parents=True)
    (tmp_path / "link").symlink_to("starts")
    (tmp_path / "other" / "starts" / "good").mkdir(parents=True)
    typed = ("starts/good", str(tmp_path / "starts" / "good"), "link/good/")
    runs = [
        write_run(tmp_path / f"run-{seed}", 0.9, seed=seed, start=start, where=tmp_path)
        for seed, start in enumerate(typed)
    ]
    (column,) = (column for column in table(*runs).columns if not column.source)
    assert (column.start, column.scores["CIFAR-10"].runs) == ("from starts/good", 3)
    elsewhere = write_run(tmp_path / "run-3", 0.8, seed=3, start="starts/good", where=tmp_path / "other")
    ours = [column for column in table(*runs, elsewhere).columns if not column.source]
    assert [column.scores["CIFAR-10"].runs for column in ours] == [3, 1]
    assert [column.start for column in ours] == [
        f"from {tmp_path}/starts/good",
        f"from {tmp_path}/other/starts/good",
    ]


def test_the_papers_figures_stand_beside_each_version_of_its_data(tmp_path: Path) -> None:
    start = "vit-l16@augreg-in21k"
    write_run(tmp_path / "a", 0.9, model="vit-l16", start=start, fingerprint="1" * 64)
    write_run(tmp_path / "b", 0.8, model="vit-l16", start=start, fingerprint="2" * 64)
    found = table(tmp_path / "a", tmp_path / "b")
    assert [row[:3] for row in found.rows()] == [
        ["CIFAR-10 (11111111)", "90.00", "99.42 ± 0.03"],
        ["CIFAR-10 (22222222)", "80.00", "99.42 ± 0.03"],
    ]


def test_datasets_that_no_name_tells_apart_are_refused(tmp_path: Path) -> None:
    write_run(tmp_path / "a", 0.9, data="photos", fingerprint="1" * 63 + "2")
    write_run(tmp_path / "b", 0.8, data="photos", fingerprint="1" * 63 + "3")
    with pytest.raises(StudyError, match="Two datasets are both called 'photos \\(11111111\\)'"):
        table(tmp_path / "a", tmp_path / "b")


def test_data_without_a_fingerprint_are_told_apart_by_name(tmp_path: Path) -> None:
    write_run(tmp_path / "a", 0.9, data="photos", fingerprint="")
    write_run(tmp_path / "b", 0.8, data="paintings", fingerprint="")
    assert table(tmp_path / "a", tmp_path / "b").rows() == [["photos", "90.00"], ["paintings", "80.00"]]


def test_what_the_paper_reports_stands_beside_ours(tmp_path: Path) -> None:
    start = "vit-l16@augreg-in21k"
    hundred = tuple(map(str, range(100)))
    write_run(tmp_path / "a", 0.99, model="vit-l16", start=start)
    write_run(
        tmp_path / "b",
        0.92,
        model="vit-l16",
        start=start,
        data="sets/CIFAR-100/",
        classes=hundred,
        fingerprint="b" * 64,
    )
    write_run(tmp_path / "c", 0.5, model="vit-l16", start=start, data="mine", fingerprint="c" * 64)
    write_run(
        tmp_path / "d", 0.4, data="mine", fingerprint="c" * 64
    )  # of another model, of which the paper's CIFAR is not asked
    found = table(*(tmp_path / name for name in "abcd"))
    assert found.datasets == ("CIFAR-10", "CIFAR-100", "mine")
    assert [column.heading() for column in found.columns] == [
        ("vit-l16", f"from {start}", "ours"),
        ("ViT-L/16", "JFT-300M", "paper, Table 2"),
        ("ViT-L/16", "ImageNet-21k", "paper, Table 2"),
        ("ViT-L/16", "ImageNet", "paper, Table 5"),
        ("vit-b16", "from scratch", "ours"),
    ]
    assert found.rows() == [
        ["CIFAR-10", "99.00", "99.42 ± 0.03", "99.15 ± 0.03", "97.86", "–"],
        ["CIFAR-100", "92.00", "93.90 ± 0.05", "93.25 ± 0.05", "86.35", "–"],
        ["mine", "50.00", "–", "–", "–", "40.00"],
    ]
    assert any("ICLR 2021" in note for note in found.notes)


def test_what_is_only_called_like_the_papers_data_is_not(tmp_path: Path) -> None:
    assert paper_dataset("datasets/oxford-iiit-pet/", 37) is not None
    assert paper_dataset("hf:uoft-cs/cifar10", 10) is not None
    assert paper_dataset("/data/cifar-10.zip", 10) is not None
    assert paper_dataset("pets:/data/authors/", 37) is not None
    assert paper_dataset("imagenet-real:/data/val", 1000) is not None
    assert paper_dataset("imagenet-v2:/data/imagenet", 1000) is None
    assert paper_dataset("pets", 2) is None
    assert paper_dataset("photos", 10) is None
    found = table(write_run(tmp_path / "run", 0.9, data="pets", classes=("cat", "dog")))
    assert found.datasets == ("pets",)
    assert not [column for column in found.columns if column.source]


def test_the_published_figures_are_the_papers() -> None:
    first = {(one.pretraining, one.table): one.scores for one in paper_results("vit-b16")}
    assert first[("ImageNet-21k", 5)]["cifar100"] == (91.67 / 100, None)
    (jft,) = paper_results("vit-h14")[:1]
    assert jft.scores["imagenet"] == (88.55 / 100, 0.04 / 100)
    assert paper_results("bit-r152x4")[0].scores["vtab"] == (76.29 / 100, 1.7 / 100)
    assert paper_results("r50-vit-l16")[0].scores["imagenet"][0] == pytest.approx(0.8712)
    assert paper_results("cvt-13") == ()


def test_the_four_forms_say_the_same(tmp_path: Path) -> None:
    for seed, score in enumerate((0.9, 0.91)):
        write_run(tmp_path / f"run_{seed}&", score, seed=seed, data="my_data & <more>|")
    found = table(*sorted(tmp_path.iterdir()))
    cell = "90.50 ± 0.71"
    assert found.rows() == [["my_data & <more>|", cell]]
    assert f"| my_data & <more>\\| | {cell} |" in found.markdown()
    assert r"my\_data \& <more>| & 90.50 $\pm$ 0.71 \\" in found.latex()
    page = found.page()
    assert "<th>my_data &amp; &lt;more&gt;|</th>" in page
    HTMLParser().feed(page)
    assert cell in found._repr_html_()
    assert json.loads(json.dumps(found.to_json()))["columns"][0]["scores"]["my_data & <more>|"]["runs"] == 2


def test_what_is_no_finished_run_is_refused(tmp_path: Path) -> None:
    whole = write_run(tmp_path / "whole", 0.9)
    with pytest.raises(StudyError, match="Which runs"):
        table()
    with pytest.raises(StudyError, match="There is no folder"):
        table(tmp_path / "missing")
    (tmp_path / "bare").mkdir()
    with pytest.raises(StudyError, match="holds no run"):
        table(whole, tmp_path / "bare")
    (whole / "evaluation.json").write_text("")
    with pytest.raises(StudyError, match="has no score yet"):
        table(whole)
    damaged = write_run(tmp_path / "damaged", 0.9)
    (damaged / "classifier" / "classifier.json").write_text('{"architecture": 3, "provenance": 4, "class_names": 5}')
    with pytest.raises(StudyError, match="'.*damaged' are damaged"):
        table(damaged)
    (damaged / "recipe.toml").write_text("nonsense")
    with pytest.raises(StudyError, match="are damaged"):
        table(damaged)
