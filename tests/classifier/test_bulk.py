"""Predictions of many images as a file: every form, damaged images as rows, and parts that a killed job goes on from."""

import csv
import json
import math
import os
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

import vitral
from tests.forks import Fork, job, script
from tests.inference.test_engines import in_bf16
from vitral.classifier.bulk import predict_to_file as bulk
from vitral.classifier.bulk.predict_to_file import predict_to_file
from vitral.classifier.folder import save
from vitral.classifier.metadata import Calibration
from vitral.data.image_stream import list_unlabelled, stream_unlabelled
from vitral.errors import ImageError, ModelError, StorageError, WeightsError
from vitral.events import Event, Message, Progress, ignore
from vitral.images.preprocessing import PHOTOS
from vitral.inference.engine_predictor import EnginePredictor
from vitral.inference.engines import Engine

COUNT = 20
FORMS = (".parquet", ".csv", ".jsonl")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with images in two folders, one of them damaged, and a classifier."""
    home = tmp_path_factory.mktemp("bulk")
    rng = np.random.default_rng(0)
    for index in range(COUNT):
        path = home / "photos" / "ab"[index % 2] / f"{index:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (20, 24, 3), dtype=np.uint8)).save(path)
    (home / "photos" / "a" / "05-bad.jpg").write_bytes(b"no image")
    model = vitral.create_model("vit-mu4", num_classes=4)
    torch.nn.init.normal_(model.head.weight, std=2.0, generator=torch.Generator().manual_seed(0))
    save(vitral.Classifier(model, PHOTOS.with_size(model.image_size), ["cat", "dög", "a, b", "d"]), home / "classifier")
    return home


@pytest.fixture
def classifier(home: Path) -> vitral.Classifier:
    """The classifier of that folder."""
    return vitral.load(home / "classifier")


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """Let a part hold a few images only; return how many."""
    monkeypatch.setattr(bulk, "IMAGES", 8)
    return 8


def rows_in(path: Path) -> list[dict[str, Any]]:
    """Read a file of predictions with what its form is usually read with, numbers as numbers."""
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    with open(path, newline="") as file:
        read = list(csv.DictReader(file))
    return [
        {
            name: None if value == "" else float(value) if name.startswith("prob") else value
            for name, value in row.items()
        }
        for row in read
    ]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_holds_what_predict_says(
    home: Path, classifier: vitral.Classifier, tmp_path: Path, form: str, few: int
) -> None:
    out = tmp_path / f"predictions{form}"
    written = predict_to_file(classifier, home / "photos", out, top=2, batch_size=3, listener=ignore)
    said = {one.source: one for one in classifier.predict(home / "photos", skip_bad_images=True, listener=ignore)}
    rows = rows_in(out)
    assert list(rows[0]) == ["source", "label", "probability", "label_2", "probability_2", "error"]
    assert [row["source"] for row in rows] == sorted(row["source"] for row in rows)
    assert len(rows) == written.images == COUNT + 1
    assert written.errors == 1
    for row in rows:
        if row["source"].endswith("05-bad.jpg"):
            assert "is not a readable image" in row["error"]
            assert row["label"] is row["probability"] is None
            continue
        expected = said[row["source"]]
        assert row["error"] is None
        assert [row["label"], row["label_2"]] == [label for label, _ in expected.top[:2]]
        assert math.isclose(row["probability"], expected.probability, abs_tol=1e-5)
    assert not (tmp_path / f"{out.name}.parts").exists()
    assert sum(written.shares.values()) == pytest.approx(1, abs=0.05)
    assert "cannot be read (column 'error')" in written.lines()[0]
    assert "images/s" in written.lines()[1]


@in_bf16
def test_a_parquet_file_says_what_computed_it(
    engine: Engine, home: Path, classifier: vitral.Classifier, tmp_path: Path
) -> None:
    classifier.predictor = EnginePredictor(classifier.model, engine, "bf16")
    predict_to_file(classifier, home / "photos", tmp_path / "out.parquet", listener=ignore)
    facts = json.loads(pq.read_schema(tmp_path / "out.parquet").metadata[b"vitral"])
    assert facts["computed_by"] == f"{engine} in bf16"
    assert facts["images"] == COUNT + 1


def test_what_it_is_not_sure_of_is_a_column(home: Path, classifier: vitral.Classifier, tmp_path: Path) -> None:
    classifier.calibration = Calibration(2.0, threshold=0.5, wanted=0.9, data="photos", images=9)
    predict_to_file(classifier, home / "photos" / "b", tmp_path / "out.parquet", listener=ignore)
    for row in rows_in(tmp_path / "out.parquet"):
        assert row["sure"] is (row["probability"] >= 0.5)


KILLED = """
import os, signal
import vitral
from vitral.classifier.bulk import predict_to_file as bulk
from vitral.events import Progress
bulk.IMAGES = 8
def listener(event):
    if isinstance(event, Progress) and event.done >= 14:
        os.kill(os.getpid(), signal.SIGKILL)
bulk.predict_to_file(vitral.load("classifier"), "photos", {out!r}, batch_size=2, listener=listener)
"""


def test_a_killed_job_goes_on_to_the_same_bytes(
    home: Path, classifier: vitral.Classifier, tmp_path: Path, few: int
) -> None:
    out, whole = tmp_path / "killed.jsonl", tmp_path / "whole.jsonl"
    images = os.path.relpath(home / "photos", home)
    ended = Fork(script, KILLED.format(out=str(out)), folder=home).ended()
    assert ended.returncode == -signal.SIGKILL
    assert not out.exists()
    parts = tmp_path / "killed.jsonl.parts"
    assert sorted(path.name for path in parts.iterdir()) == [".vitral-lock", "job.json", "part-000000000.jsonl"]
    said: list[Event] = []
    os_folder = Path.cwd()
    os.chdir(home)
    try:
        written = predict_to_file(classifier, images, out, batch_size=2, listener=said.append)
        predict_to_file(classifier, images, whole, batch_size=2, listener=ignore)
    finally:
        os.chdir(os_folder)
    assert out.read_bytes() == whole.read_bytes()
    assert written.before == few
    assert written.images == COUNT + 1
    assert any(isinstance(event, Message) and "Goes on after 8 of 21 images" in event.text for event in said)
    assert not parts.exists()


KILLED_LATE = """
import os, signal
import vitral
from vitral.classifier.bulk import parts, predict_to_file as bulk

def die(place, *more):
    if not os.path.exists({out!r}):
        return os.rmdir(place)  # one that was only tried
    os.kill(os.getpid(), signal.SIGKILL)

{where} = die
bulk.predict_to_file(vitral.load("classifier"), "photos", {out!r})
"""


@pytest.mark.parametrize("where", ["parts.Parts.clear", "parts.Path.unlink", "parts.Path.rmdir"])
def test_a_job_killed_after_its_file_took_its_name_is_ended_by_the_same_command(
    home: Path, classifier: vitral.Classifier, tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "late.csv"
    assert (
        Fork(script, KILLED_LATE.format(out=str(out), where=where), folder=home).ended().returncode == -signal.SIGKILL
    )
    content = out.read_bytes()
    assert len(rows_in(out)) == COUNT + 1
    monkeypatch.chdir(home)
    if where == "parts.Path.rmdir":  # nothing but an empty folder is left: the job was done
        with pytest.raises(StorageError, match="already exists"):
            predict_to_file(classifier, "photos", out, listener=ignore)
    else:
        written = predict_to_file(classifier, "photos", out, listener=ignore)
        assert (written.images, written.errors, written.before) == (COUNT + 1, 1, COUNT + 1)
    assert out.read_bytes() == content
    assert [path.name for path in tmp_path.iterdir()] == ["late.csv"]


def test_a_whole_file_of_another_is_not_taken_for_the_jobs(
    home: Path, classifier: vitral.Classifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "late.csv"
    Fork(script, KILLED_LATE.format(out=str(out), where="parts.Parts.clear"), folder=home).ended()
    out.write_text("mine")
    monkeypatch.chdir(home)
    with pytest.raises(StorageError, match="already exists"):
        predict_to_file(classifier, "photos", out, listener=ignore)
    assert out.read_text() == "mine"


def test_no_name_is_a_formula_or_a_command_of_a_terminal(classifier: vitral.Classifier, tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    names = ("=cmd|' |C!A0.png", "+1+cmd.png", "@sum.png", "-x.png", "\uff1dwide.png", "red\x1b[31m.png", "plain.png")
    for name in names:
        Image.new("RGB", (8, 8)).save(photos / name)
    monkeypatched = os.getcwd()
    os.chdir(photos)
    try:
        written = predict_to_file(classifier, list(names), tmp_path / "rows.csv", listener=ignore)
        predict_to_file(classifier, list(names), tmp_path / "rows.jsonl", listener=ignore)
    finally:
        os.chdir(monkeypatched)
    assert written.quoted == 5
    assert "apostrophe" in " ".join(written.lines())
    found = [row["source"] for row in rows_in(tmp_path / "rows.csv")]
    assert found == [*(f"'{name}" for name in names[:5]), "red\\x1b[31m.png", "plain.png"]
    assert [row["source"] for row in rows_in(tmp_path / "rows.jsonl")] == list(names)
    for path in (tmp_path / "rows.csv", tmp_path / "rows.jsonl"):
        assert b"\x1b" not in path.read_bytes()


def begun(out: Path, classifier: vitral.Classifier, home: Path) -> Path:
    """Leave the first part of a job, as an interruption does; return their folder."""

    def interrupted(event: Event) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        predict_to_file(classifier, home / "photos", out, batch_size=2, listener=interrupted)
    folder = out.with_name(f"{out.name}.parts")
    shutil.copy(folder / "job.json", folder / "part-000000001.jsonl")
    return folder


def test_parts_of_another_job_are_refused_until_they_may_go(
    home: Path, classifier: vitral.Classifier, tmp_path: Path, few: int
) -> None:
    out = tmp_path / "out.csv"
    folder = begun(out, classifier, home)
    other = vitral.load(home / "classifier")
    with torch.no_grad():
        other.model.head.bias.add_(1)
    fast = vitral.load(home / "classifier", engine="packed", precision="bf16")
    for words, using, images, top in (
        ("another classifier", other, "photos", 3),
        ("other images", classifier, "photos/a", 3),
        ("another number of classes", classifier, "photos", 2),
        (r"another engine or precision \(torch in fp32\)", fast, "photos", 3),
    ):
        with pytest.raises(StorageError, match=f"first part of a job with {words}"):
            predict_to_file(using, home / images, out, top=top, listener=ignore)
    assert (folder / "part-000000001.jsonl").exists()
    written = predict_to_file(other, home / "photos", out, overwrite=True, listener=ignore)
    assert written.before == 0
    assert len(rows_in(out)) == COUNT + 1


@pytest.mark.parametrize("form", ["folder", "archive", "moved"])
def test_rows_of_images_that_changed_are_not_taken(
    home: Path, classifier: vitral.Classifier, tmp_path: Path, few: int, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "01":
        shutil.copytree(home / "photos", tmp_path / name / "photos")
    monkeypatch.chdir(tmp_path / "0")
    images = "photos" if form != "archive" else shutil.make_archive("photos", "zip", "photos")

    def interrupted(event: Event) -> None:
        if isinstance(event, Progress):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        predict_to_file(classifier, images, tmp_path / "out.csv", listener=interrupted)
    if form == "moved":
        monkeypatch.chdir(tmp_path / "1")
    elif form == "archive":
        os.utime(images, (1, 1))
    else:
        shutil.copy("photos/a/02.png", "photos/a/00.png")
    with pytest.raises(StorageError, match="other images, or with these before they changed; .* begin anew with"):
        predict_to_file(classifier, images, tmp_path / "out.csv", listener=ignore)


def test_later_threads_of_the_process_have_all_cores_again(
    home: Path, classifier: vitral.Classifier, tmp_path: Path
) -> None:
    def later() -> int:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(torch.get_num_threads).result()

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        predict_to_file(classifier, home / "photos", tmp_path / "out.csv", listener=ignore)
        assert (torch.get_num_threads(), later()) == (2, 2)
    finally:
        torch.set_num_threads(before)


def test_a_folder_of_something_else_is_left_alone(home: Path, classifier: vitral.Classifier, tmp_path: Path) -> None:
    (tmp_path / "out.csv.parts").mkdir()
    (tmp_path / "out.csv.parts" / "thesis.tex").write_text("")
    with pytest.raises(StorageError, match=r"holds something else \('thesis.tex'\)"):
        predict_to_file(classifier, home / "photos", tmp_path / "out.csv", overwrite=True, listener=ignore)


def test_what_is_there_is_not_replaced_unless_it_may_be(
    home: Path, classifier: vitral.Classifier, tmp_path: Path
) -> None:
    out = tmp_path / "out.csv"
    out.write_text("mine")
    with pytest.raises(StorageError, match="already exists"):
        predict_to_file(classifier, home / "photos", out, listener=ignore)
    assert out.read_text() == "mine"
    predict_to_file(classifier, home / "photos", out, overwrite=True, listener=ignore)
    assert len(rows_in(out)) == COUNT + 1


def test_a_second_job_into_one_file_is_refused_and_takes_nothing(
    home: Path, classifier: vitral.Classifier, tmp_path: Path, few: int
) -> None:
    out = tmp_path / "out.jsonl"
    refused: list[str] = []

    def second(event: Event) -> None:
        if isinstance(event, Progress) and not refused:
            with pytest.raises(StorageError, match="is working in .*parts") as error:
                predict_to_file(classifier, home / "photos", out, overwrite=True, batch_size=2, listener=ignore)
            refused.append(str(error.value))

    predict_to_file(classifier, home / "photos", out, batch_size=2, listener=second)
    assert len(refused) == 1
    assert "\n" not in refused[0]
    assert len(rows_in(out)) == COUNT + 1
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("lost", ["part", "rows"])
def test_a_file_is_never_replaced_by_a_part_of_it(
    home: Path, classifier: vitral.Classifier, tmp_path: Path, few: int, lost: str
) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text("a whole file")

    def lose(event: Event) -> None:
        first = tmp_path / "out.jsonl.parts" / "part-000000000.jsonl"
        if isinstance(event, Progress) and first.exists():
            first.unlink() if lost == "part" else first.write_text(first.read_text().partition("\n")[0] + "\n")

    with pytest.raises(StorageError, match="does not hold all rows"):
        predict_to_file(classifier, home / "photos", out, overwrite=True, batch_size=2, listener=lose)
    assert out.read_text() == "a whole file"


def test_a_file_that_appears_meanwhile_is_kept(home: Path, classifier: vitral.Classifier, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"

    def write(event: Event) -> None:
        out.write_text("another's")

    with pytest.raises(StorageError, match="already exists"):
        predict_to_file(classifier, home / "photos", out, listener=write)
    assert out.read_text() == "another's"


def test_a_classifier_may_be_named(home: Path, classifier: vitral.Classifier, tmp_path: Path) -> None:
    predict_to_file(classifier, home / "photos", tmp_path / "itself.csv", listener=ignore)
    predict_to_file(str(home / "classifier"), home / "photos", tmp_path / "named.csv", listener=ignore)
    assert (tmp_path / "named.csv").read_text() == (tmp_path / "itself.csv").read_text()
    with pytest.raises(WeightsError, match="no model name"):
        predict_to_file("vit-mu44", home / "photos", tmp_path / "none.csv", listener=ignore)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["itself.csv", "named.csv"]


@pytest.mark.parametrize("typed", [["phots"], ["photos", "phots"]])
def test_a_mistyped_path_is_refused_before_anything_is_written(
    home: Path, classifier: vitral.Classifier, tmp_path: Path, typed: list[str]
) -> None:
    out = tmp_path / "good.jsonl"
    out.write_text("good")
    with pytest.raises(ImageError, match="phots' is not there"):
        predict_to_file(classifier, [home / name for name in typed], out, overwrite=True, listener=ignore)
    assert out.read_text() == "good"
    assert list(tmp_path.iterdir()) == [out]


def test_where_no_image_can_be_read_the_old_file_is_kept(
    home: Path, classifier: vitral.Classifier, tmp_path: Path
) -> None:
    out = tmp_path / "good.jsonl"
    out.write_text("good")
    with pytest.raises(ImageError, match="The only image cannot be read.*is not a readable image"):
        predict_to_file(classifier, home / "photos" / "a" / "05-bad.jpg", out, overwrite=True, listener=ignore)
    assert out.read_text() == "good"
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("name", ["out.xlsx", "out"])
def test_another_form_is_refused(home: Path, classifier: vitral.Classifier, tmp_path: Path, name: str) -> None:
    with pytest.raises(StorageError, match=r"ends in \.parquet, \.csv, \.jsonl"):
        predict_to_file(classifier, home / "photos", tmp_path / name, listener=ignore)


def test_a_network_that_gives_no_number_stops_the_job(
    home: Path, classifier: vitral.Classifier, tmp_path: Path
) -> None:
    with torch.no_grad():
        classifier.model.head.bias.fill_(math.nan)
    with pytest.raises(ModelError, match="gives no number"):
        predict_to_file(classifier, home / "photos", tmp_path / "out.csv", listener=ignore)
    assert not (tmp_path / "out.csv").exists()


def test_no_images_are_one_line(classifier: vitral.Classifier, tmp_path: Path) -> None:
    (tmp_path / "hollow").mkdir()
    with pytest.raises(ImageError, match="holds no images"):
        predict_to_file(classifier, tmp_path / "hollow", tmp_path / "out.csv", listener=ignore)


def test_any_source_will_do(classifier: vitral.Classifier, home: Path, tmp_path: Path) -> None:
    archive = shutil.make_archive(str(tmp_path / "photos"), "zip", home / "photos")
    one = next((home / "photos" / "b").iterdir())
    written = predict_to_file(classifier, [archive, one, "digits"], tmp_path / "out.jsonl", listener=ignore)
    rows = rows_in(tmp_path / "out.jsonl")
    assert written.images == len(rows) == COUNT + 1 + 1 + 1797
    assert rows[COUNT + 1]["source"] == str(one)
    assert rows[-1]["source"].startswith("digits[")


SHARED = """
import vitral
from vitral.classifier.bulk import predict_to_file as bulk
bulk.IMAGES = 4
from vitral import distributed
distributed.join()
bulk.predict_to_file(vitral.load({classifier!r}), {photos!r}, {out!r}, listener=lambda event: None)
distributed.leave()
"""


def test_the_processes_of_a_job_share_the_images_out(home: Path, classifier: vitral.Classifier, tmp_path: Path) -> None:
    out, alone = tmp_path / "shared.jsonl", tmp_path / "alone.jsonl"
    names = {"classifier": str(home / "classifier"), "photos": str(home / "photos"), "out": str(out)}
    for done in job(2, script, SHARED.format(**names)):
        assert done.returncode == 0, done.stderr
    predict_to_file(classifier, home / "photos", alone, listener=ignore)
    shared, single = rows_in(out), rows_in(alone)
    assert [row["source"] for row in shared] == [row["source"] for row in single]
    assert [row["label"] for row in shared] == [row["label"] for row in single]


def test_a_folder_is_listed_while_it_is_predicted(home: Path, tmp_path: Path) -> None:
    shutil.copytree(home / "photos", tmp_path / "photos")
    images = stream_unlabelled(str(tmp_path / "photos"))
    assert next(images).name.endswith("a/00.png")
    shutil.copy(tmp_path / "photos" / "a" / "00.png", tmp_path / "photos" / "b" / "zz.png")
    assert [image.name for image in images][-1].endswith("b/zz.png"), "a folder is not read before its turn"
    listed = [image.name for image in list_unlabelled(str(tmp_path / "photos"))]
    assert listed == sorted(listed)
