"""Starts compared on a user's images: which is best, what cannot be compared, how the time is kept."""

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from huggingface_hub import close_session, constants
from PIL import Image

import vitral
from tests.studies.made_starts import SIZE, write_gratings
from tests.weights.hub_server import hub
from vitral.classifier.folder import read, save
from vitral.errors import DataError, StorageError, StudyError, WeightsError
from vitral.evaluation.start_probes import Images, ProbeCost, measure_cost
from vitral.events import Event, Message, ignore
from vitral.report.start_table import PIXELS, StartTable
from vitral.studies.compare_starts import automatic_names, read_names
from vitral.training.starting.published_start import is_free
from vitral.weights.named.table import rows

SMALLEST = "vit-mu4"


@pytest.fixture
def no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fetching is allowed, but whatever is asked for is sent to a port where nobody listens; the cache is empty."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for scheme in ("http", "https", "all"):
        for name in (f"{scheme}_proxy", f"{scheme}_proxy".upper()):
            monkeypatch.setenv(name, "http://127.0.0.1:9")
    close_session()  # which has read the addresses of the proxies
    yield
    close_session()


def order(table: StartTable) -> list[str]:
    return [row.name for row in table.rows]


def test_the_better_start_comes_first_and_is_proposed(among_starts: Path) -> None:
    heard: list[Event] = []
    table = vitral.starts("photos", ["poor", "good", SMALLEST], listener=heard.append)
    assert order(table)[0] == "good"
    assert (table.best, table.tied, table.beats_pixels) == ("good", ("good",), True)
    assert table.next == "vitral.finetune('photos', source='good')"
    assert (table.train_images, table.judging_images, table.split) == (160, 120, "validation")
    good, poor, random, pixels = (table.row(name) for name in ("good", "poor", SMALLEST, PIXELS))
    assert good.accuracy is not None
    assert good.low is not None
    assert good.high is not None
    assert 0.9 < good.accuracy < good.high
    assert good.low < good.accuracy
    assert good.parameters == 5620
    assert good.megabytes == (among_starts / "good" / "weights.safetensors").stat().st_size / 1e6
    assert (good.weights, poor.weights, random.weights, pixels.weights) == ("trained", "trained", "random", "none")
    assert (random.megabytes, pixels.parameters) == (None, None)
    assert random.remarks == ("random weights, for comparison.",)
    assert any(event.text.startswith("Start 2 of 3: good: ") for event in heard if isinstance(event, Message))
    assert not (among_starts / "runs").exists()
    assert repr(table) == "StartTable: 4 rows on photos, good is best"


def test_its_figure_is_that_of_the_first_classifier_of_a_run_from_it(among_starts: Path, tmp_path: Path) -> None:
    table = vitral.starts("photos", "good", image_size=SIZE, listener=ignore)
    run = vitral.finetune("photos", source="good", out=tmp_path / "run", quick=True, image_size=SIZE, listener=ignore)
    assert run.classifier.provenance.scores["validation/top1"] == table.row("good").accuracy


def test_starts_that_the_images_cannot_tell_apart_are_a_tie(among_starts: Path) -> None:
    table = vitral.starts("photos", ["good", "good.npz", "poor"], listener=ignore)
    assert set(table.tied) == {"good", "good.npz"}
    assert table.best in table.tied
    other = next(name for name in table.tied if name != table.best)
    assert table.verdict()[0].startswith(f"{table.best} and {other} are a tie: ")


def test_where_nothing_but_random_weights_is_compared_none_is_proposed(among_starts: Path) -> None:
    table = vitral.starts("photos", SMALLEST, listener=ignore)
    assert (table.best, table.next) == ("", "")
    assert table.verdict()[0].startswith("None of them is recommended: random weights")
    assert repr(table).endswith("none is recommended")


def test_a_start_that_cannot_be_loaded_is_a_row_and_the_others_go_on(among_starts: Path, tmp_path: Path) -> None:
    heard: list[Event] = []
    table = vitral.starts("photos", ["damaged", "photos", "good"], listener=heard.append)
    assert order(table) == ["good", PIXELS, "damaged", "photos"]
    damaged = table.row("damaged")
    assert damaged.accuracy is None
    assert "damaged/weights.safetensors" in damaged.problem
    assert "is no classifier folder" in table.row("photos").problem
    assert f"Not compared: {damaged.problem}" in table.remarks()
    assert Message(f"Start 1 of 3: Not compared: {damaged.problem}", warning=True) in heard


def test_weights_that_give_no_numbers_are_a_row(among_starts: Path, tmp_path: Path) -> None:
    broken = read(among_starts / "good")
    next(iter(broken.model.parameters())).data.fill_(float("nan"))
    save(broken, tmp_path / "broken")
    table = vitral.starts("photos", [tmp_path / "broken", "poor"], listener=ignore)
    assert "no finite numbers" in table.row(str(tmp_path / "broken")).problem
    assert table.best == "poor"


def test_if_no_start_can_be_compared_that_is_an_error_with_the_first_reason(among_starts: Path) -> None:
    with pytest.raises(StudyError, match=r"No start .*damaged.*weights\.safetensors"):
        vitral.starts("photos", "damaged", listener=ignore)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ("vit-s14@dinov3x,good", "Of vit-s14 there are: vit-s14@dinov2"),
        ("good,vit-b61", "Did you mean 'vit-b16'"),
        ("good,runs/photoz", "There is no file or folder 'runs/photoz'"),
        ("good, godo.npz", "'godo.npz' is no file"),
    ],
)
def test_a_slip_of_the_hand_is_refused_before_any_work(among_starts: Path, names: str, said: str) -> None:
    with pytest.raises(WeightsError) as refused:
        vitral.starts("no/such/data", names, listener=ignore)
    assert said in str(refused.value)


def test_names_are_each_compared_once_in_the_order_in_which_they_were_typed(among_starts: Path) -> None:
    assert read_names("poor, good,,poor", ignore) == ("poor", "good")
    assert read_names([among_starts / "good", "poor"], ignore) == (str(among_starts / "good"), "poor")
    for nothing in ("", " , ", ()):
        with pytest.raises(StudyError, match="No start .*'auto'"):
            read_names(nothing, ignore)


def test_automatic_names_are_what_is_here_and_the_best_small_free_ones_of_each_kind_of_score() -> None:
    listed = list(rows().values())
    here = {"vit-l14@dinov2", "vit-b16@mae"}
    assert automatic_names([rows()[name] for name in here], here) == ["vit-l14@dinov2"], "MAE's are not for products"
    assert automatic_names([], ()) == []
    fetched = [rows()[name] for name in automatic_names(listed, ())]
    assert "vit-s14@dinov2" in [row.name for row in fetched]
    assert len({row.metric for row in fetched}) == len(fetched)
    for row in fetched:
        assert (is_free(row), row.megabytes <= 100, row.image_size <= 256) == (True, True, True)
        rivals = [one for one in listed if one.metric == row.metric and is_free(one)]
        small = [one.score or 0 for one in rivals if one.megabytes <= 100 and one.image_size <= 256]
        assert max(small) - 0.5 <= (row.score or 0) <= max(small)
    with_one = automatic_names(listed, {fetched[0].name})
    assert len(with_one) == len(set(with_one)) == len(fetched)


def test_what_nobody_confirmed_is_never_fetched_unasked() -> None:
    sure = next(row for row in rows().values() if is_free(row) and row.megabytes <= 100 and row.image_size <= 256)
    for field in ("score", "licence"):
        better = replace(sure, score=99.0, unverified=(field,))
        assert automatic_names([better], ()) == []
        assert automatic_names([sure, better], ()) == [sure.name]


def test_without_a_network_and_weights_here_automatic_names_are_one_error(among_starts: Path, no_network: None) -> None:
    heard: list[Event] = []
    with pytest.raises(StudyError, match="no internet"):
        vitral.starts("photos", "auto", listener=heard.append)
    assert heard == []


def test_without_a_network_automatic_names_are_those_here_which_one_line_says(
    among_starts: Path, tmp_path: Path, no_network: None
) -> None:
    heard: list[Event] = []
    assert read_names("good,auto", heard.append) == ("good",)
    (line,) = heard
    assert isinstance(line, Message)
    assert line.warning
    assert "'auto'" in line.text
    assert "internet" in line.text
    here = "vit-ti16@augreg-in21k-ft-in1k"
    snapshot = tmp_path / "hub" / f"models--{rows()[here].repository.replace('/', '--')}" / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / rows()[here].file).write_bytes(b"")
    references = snapshot.parent.parent / "refs"
    references.mkdir()
    (references / "main").write_text(snapshot.name)
    assert read_names("good,auto", heard.append) == ("good", here)
    assert heard == [line, line]


def test_offline_nothing_is_fetched_which_every_message_says(among_starts: Path, no_network: None) -> None:
    switched_off = "fetching is switched off (by `offline=True` or HF_HUB_OFFLINE)"
    with pytest.raises(StudyError) as refused:
        vitral.starts("photos", "auto", offline=True, listener=ignore)
    assert switched_off in str(refused.value)
    named = ["vit-s14@dinov2", "vit-s16@dino", "hf:lab/vit"]
    table = vitral.starts("photos", [*named, "poor"], offline=True, listener=ignore)
    for name in named:
        problem = table.row(name).problem or ""
        assert problem.startswith(f"{name_of(name)} is not on this machine")
        assert switched_off in problem
    assert not constants.HF_HUB_OFFLINE


def name_of(start: str) -> str:
    """Return a start's name as messages have it."""
    return f"'{start.removeprefix('hf:')}'" if start.startswith("hf:") else start


def test_without_validation_images_each_is_left_out_of_the_fit_that_judges_it(
    among_starts: Path, tmp_path: Path
) -> None:
    data = write_gratings(tmp_path / "few", 2, seed=5)
    table = vitral.starts(data, ["poor", "good"], listener=ignore)
    assert (table.split, table.train_images, table.judging_images) == ("training", 8, 8)
    assert "8 training photos, each left out of the fit that scores it" in table.judged()


def test_a_start_that_has_learned_from_what_judges_it_is_not_proposed(among_starts: Path, tmp_path: Path) -> None:
    data = write_gratings(tmp_path / "few", 2, seed=5)
    learned = read(among_starts / "good")
    fingerprint = vitral.check(data, listener=ignore).fingerprint
    learned.provenance = replace(learned.provenance, training={"data_fingerprint": fingerprint})
    save(learned, tmp_path / "learned")
    table = vitral.starts(data, [tmp_path / "learned", "poor"], listener=ignore)
    assert table.best == "poor"
    assert table.row(str(tmp_path / "learned")).remarks == ("it was trained on these data before.",)


def test_images_with_several_classes_are_refused_in_one_line(among_starts: Path, tmp_path: Path) -> None:
    lines = ["image,labels"]
    for number in range(12):
        Image.new("RGB", (20, 20), (number, 0, 0)).save(tmp_path / f"{number}.png")
        lines.append(f"{number}.png,{'a|b' if number % 2 else 'a'}")
    (tmp_path / "several.csv").write_text("\n".join(lines))
    with pytest.raises(DataError, match="which is for one class a photo"):
        vitral.starts(tmp_path / "several.csv", "good", listener=ignore)


def slow(monkeypatch: pytest.MonkeyPatch, seconds: dict[str, float]) -> None:
    """Let the images of each start take as long as said, by the clock of the budget alone; all else is measured."""

    def measured(classifier: vitral.Classifier, images: Images, loading: float, **how: Any) -> ProbeCost:  # noqa: ANN401
        cost = measure_cost(classifier, images, loading, **how)
        an_image = seconds.get(classifier.provenance.source, 1.0)
        return replace(cost, loading=0.0, train_image=an_image, judging_image=an_image)

    monkeypatch.setattr("vitral.studies.compare_starts.measure_cost", measured)


def test_a_budget_thins_the_images_equally_for_all_starts(among_starts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[Event] = []
    slow(monkeypatch, {"a file": 60.0})
    began = time.monotonic()
    table = vitral.starts("photos", "good,poor", time="4h", started=began, listener=heard.append)
    taken = (2 * 60 + 1) * (table.train_images + table.judging_images)
    assert 0.7 * 4 * 3600 < taken <= 4 * 3600
    assert table.best == "good"
    said = f"There is time for {table.train_images} training photos and {table.judging_images} validation photos of "
    assert any(event.text.startswith(said) for event in heard if isinstance(event, Message))


def test_a_download_is_no_part_of_what_a_start_costs_to_load_again(
    among_starts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that counts the bytes that the Hub sends."""
    costs: list[ProbeCost] = []

    def measured(*arguments: Any, **how: Any) -> ProbeCost:  # noqa: ANN401
        costs.append(measure_cost(*arguments, **how))
        return costs[-1]

    monkeypatch.setattr("vitral.studies.compare_starts.measure_cost", measured)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    with hub() as server:
        files = {path.name: path.read_bytes() for path in (among_starts / "good").iterdir()}
        server.repositories["lab/good"] = files
        monkeypatch.setattr(constants, "ENDPOINT", server.address)
        template = f"{server.address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        bytes_sent = SimpleNamespace(perf_counter=lambda: float(server.sent), monotonic=time.monotonic)
        monkeypatch.setattr("vitral.studies.compare_starts.clock", bytes_sent)
        table = vitral.starts("photos", "hf:lab/good", time="4h", listener=ignore)
    assert table.best == "hf:lab/good"
    assert server.sent >= len(files["weights.safetensors"])
    assert [cost.loading for cost in costs] == [0, 0]


def test_a_start_for_which_there_is_no_time_is_a_row_that_says_so(
    among_starts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow(monkeypatch, {"a file": 1e6})
    table = vitral.starts("photos", "good,good.npz", time="4h", listener=ignore)
    assert table.row("good").problem == "there was no time for it"
    assert table.best == "good.npz"
    assert table.train_images == 160


def test_where_the_time_is_over_at_once_nothing_is_compared(among_starts: Path) -> None:
    with pytest.raises(StudyError, match="there was no time for it"):
        vitral.starts("photos", "good", time="1s", started=time.monotonic() - 100, listener=ignore)


def test_both_files_say_what_the_table_says(among_starts: Path, tmp_path: Path) -> None:
    table = vitral.starts("photos", "good,damaged", out=tmp_path / "out", listener=ignore)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"starts.json", "starts.md"}
    kept = json.loads((tmp_path / "out" / "starts.json").read_text())
    assert kept == json.loads(json.dumps(table.to_json()))
    assert [(row["name"], row["best"]) for row in kept["rows"]] == [("good", True), (PIXELS, False), ("damaged", False)]
    text = (tmp_path / "out" / "starts.md").read_text()
    assert text == str(table)
    assert f"| **good** | {table.row('good').accuracy:.1%} |" in text
    assert table.next in text
    again = vitral.starts("photos", "poor", out=tmp_path / "out", listener=ignore)
    assert json.loads((tmp_path / "out" / "starts.json").read_text())["best"] == again.best == "poor"


def test_other_files_and_the_data_are_never_written_over(among_starts: Path, tmp_path: Path) -> None:
    (tmp_path / "starts.md").write_text("mine")
    with pytest.raises(StorageError, match="already exists, and this command did not write it"):
        vitral.starts("photos", "good", out=tmp_path, listener=ignore)
    assert (tmp_path / "starts.md").read_text() == "mine"
    for out in ("photos", "photos/out"):
        with pytest.raises(StorageError, match="lies in the data"):
            vitral.starts("photos", "good", out=out, listener=ignore)


def test_a_folder_that_cannot_be_made_is_refused_before_any_work(among_starts: Path) -> None:
    """Root may write to /proc by its permissions, but nothing can be made there."""
    heard: list[Event] = []
    with pytest.raises(StorageError, match=r"Cannot write '/proc/nope/starts\.\w+'"):
        vitral.starts("photos", "good", out="/proc/nope", listener=heard.append)
    assert heard == []


def test_what_is_checked_before_leaves_nothing_behind(among_starts: Path, tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="No start could be compared"):
        vitral.starts("photos", "damaged", out=tmp_path / "out", listener=ignore)
    assert list(tmp_path.iterdir()) == []


def test_the_table_is_heard_before_it_is_written(among_starts: Path, tmp_path: Path) -> None:
    told: list[StartTable] = []

    def in_the_way(table: StartTable) -> None:
        (tmp_path / "out").write_text("made meanwhile")
        told.append(table)

    with pytest.raises(StorageError, match="Cannot write"):
        vitral.starts("photos", "good", out=tmp_path / "out", listener=ignore, told=in_the_way)
    assert [table.best for table in told] == ["good"]
