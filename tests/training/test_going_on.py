"""A run continues as the run that it was: what was asked, the data, the length, one process at a time; or it says why not."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.cli.conftest import write_images
from tests.data.test_groups import write_exposures
from vitral.classifier.load import load
from vitral.cli.command_line import commands_of
from vitral.data.open import open_data
from vitral.errors import ImageError, TrainingError, UsageError
from vitral.evaluation.opening import open_split
from vitral.events import Event, Message, Progress
from vitral.studies.finetune import finetune
from vitral.studies.run_report import run_report
from vitral.training.candidates.result import RunResult
from vitral.training.clock import Clock
from vitral.training.records.data_record import data_changes, keep_data, record_change, redrawn
from vitral.training.records.run_folder import read_run, update_run
from vitral.training.settings.recipe import load_recipe
from vitral.training.starting import opening

SETTINGS = ("steps=6", "batch_size=8", "workers=0", "checkpoint.every_steps=2", "precision=fp32")


class Folder:
    """Photos of two classes, and runs on them."""

    def __init__(self, root: Path) -> None:
        self.photos, self.run = root / "photos", root / "run"
        self.said: list[Event] = []
        write_images(self.photos, {"red": 14, "green": 14})

    def begin(self, **changes: Any) -> RunResult:  # noqa: ANN401
        asked: dict[str, Any] = {
            "source": "vit-mu16",
            "image_size": 32,
            "overrides": SETTINGS,
            "baselines": False,
            "listener": self.said.append,
        } | changes
        return finetune(self.photos, out=self.run, **asked)

    def go_on(self, **changes: Any) -> RunResult:  # noqa: ANN401
        return finetune(out=self.run, resume=True, listener=self.said.append, **changes)

    def weights(self) -> str:
        return hashlib.sha256((self.run / "classifier" / "weights.safetensors").read_bytes()).hexdigest()

    def warnings(self) -> str:
        return "\n".join(event.text for event in self.said if isinstance(event, Message) and event.warning)

    def cut_back(self) -> None:
        """Leave what a kill in the middle would have left."""
        shutil.rmtree(self.run / "classifier")
        (self.run / "evaluation.json").unlink()
        for path in sorted((self.run / "checkpoints").glob("step-*"))[1:]:
            shutil.rmtree(path)
        newest = next((self.run / "checkpoints").glob("step-*"))
        assert json.loads((newest / "state.json").read_text())["step"] < 6

    def lose(self, checkpoint: str) -> None:
        """Leave what a kill before this checkpoint would have left."""
        shutil.rmtree(self.run / "classifier")
        shutil.rmtree(self.run / "checkpoints" / checkpoint)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("finished")
    Folder(root).begin()
    return root


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Folder:
    """A finished run and its data, at another place than they began."""
    shutil.copytree(finished / "photos", tmp_path / "elsewhere" / "photos")
    shutil.copytree(finished / "run", tmp_path / "elsewhere" / "run")
    shutil.rmtree(tmp_path / "elsewhere" / "photos")
    folder = Folder(tmp_path / "elsewhere")
    shutil.rmtree(folder.photos)
    shutil.copytree(finished / "photos", folder.photos)
    run = json.loads((folder.run / "run.json").read_text())
    run["request"]["data"] = str(folder.photos)
    (folder.run / "run.json").write_text(json.dumps(run))
    return folder


def test_nothing_need_be_said_again(folder: Folder) -> None:
    weights = folder.weights()
    folder.cut_back()
    folder.go_on()
    assert folder.weights() == weights
    assert "changed" not in folder.warnings()
    assert "other means" not in folder.warnings()


def added(photos: Path) -> str:
    shutil.copy(photos / "red" / "0.jpg", photos / "red" / "new.jpg")
    return r"/red now has \d+ images, had \d+"


def removed(photos: Path) -> str:
    (photos / "red" / "0.jpg").unlink()
    return r"/red now has \d+ images, had \d+"


def renamed(photos: Path) -> str:
    (photos / "red" / "0.jpg").rename(photos / "red" / "00.jpg")
    return "/red has other images"


def relabelled(photos: Path) -> str:
    one, other = photos / "red" / "0.jpg", photos / "green" / "0.jpg"
    one.rename(photos / "kept.jpg")
    other.rename(one)
    (photos / "kept.jpg").rename(other)
    return "has other images, or other names or contents"


def repainted(photos: Path) -> str:
    path = photos / "green" / "3.jpg"
    content = bytearray(path.read_bytes())
    content[-20] ^= 1  # of the same name and size
    path.write_bytes(content)
    return "/green has other images, or other names or contents"


@pytest.mark.parametrize("change", [added, removed, renamed, relabelled, repainted])
def test_other_data_are_refused_or_noted(folder: Folder, change: Any) -> None:  # noqa: ANN401
    folder.cut_back()
    said = change(folder.photos)
    before = (folder.run / "run.json").read_bytes()
    with pytest.raises(TrainingError, match=said) as refused:
        folder.go_on()
    assert "`data_changed=True`" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert (folder.run / "run.json").read_bytes() == before
    assert not (folder.run / "classifier").exists()


def test_data_that_may_have_changed_are_noted(folder: Folder) -> None:
    folder.cut_back()
    was = open_data(folder.photos).fingerprint
    added(folder.photos)
    result = folder.go_on(data_changed=True)
    description = json.loads((folder.run / "classifier" / "classifier.json").read_text())
    (change,) = description["provenance"]["training"]["data_changes"]
    assert (change["after_step"], change["from"]) == (2, was)
    assert change["to"] == open_data(folder.photos).fingerprint
    assert "The data changed since the run began" in folder.warnings()
    assert "does not give the same weights: the data changed after step 2" in (folder.run / "recipe.toml").read_text()
    drawn = "images that the run trained on before may now be validation or test images, and the scores too good."
    assert drawn in folder.warnings()
    assert drawn in " ".join(run_report(result).notes)
    folder.go_on()  # once said, it need not be said again


def test_the_batch_stays_where_images_were_removed(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    shutil.rmtree(folder.photos)
    write_images(folder.photos, {"red": 30, "green": 30})
    folder.begin(overrides=[said for said in SETTINGS if not said.startswith("batch_size")])
    batch = load_recipe(folder.run / "recipe.toml").batch_size
    folder.cut_back()
    for index in range(1, 9):
        (folder.photos / "red" / f"{index}.jpg").unlink()
    images = len(open_data(folder.photos).splits["train"])
    assert 8 <= images // 4 < batch  # what a run that begins would take
    folder.go_on(data_changed=True)
    assert load_recipe(folder.run / "recipe.toml").batch_size == batch


def test_splits_of_the_datas_own_are_not_said_to_be_drawn_anew(tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    write_images(photos, {"red": 10, "green": 10})
    split = {name: tmp_path / "split" / name for name in ("train", "val", "test")}
    for where in split.values():
        shutil.copytree(photos, where)
    for data, splits in ((open_data(photos), ["validation", "test"]), (open_data(tmp_path / "split"), [])):
        for step, expected in ((2, splits), (0, [])):
            run = tmp_path / f"run-{len(splits)}-{step}"
            run.mkdir()
            (run / "run.json").write_text("{}")
            record_change(run, data, {}, ["other images"], step=step)
            assert data_changes(run)[0]["redrawn"] == expected
            assert bool(redrawn(run)) == bool(expected)


def test_changed_data_are_a_matter_of_going_on(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="`data_changed=True` belongs to `resume=True`"):
        Folder(tmp_path).begin(data_changed=True)


def test_other_classes_are_never_gone_on_with(folder: Folder) -> None:
    folder.cut_back()
    write_images(folder.photos / "more", {"blue": 1})
    shutil.copytree(folder.photos / "green", folder.photos / "blue")
    shutil.rmtree(folder.photos / "more")
    for changed in (False, True):
        with pytest.raises(TrainingError, match="'blue' is new"):
            folder.go_on(data_changed=changed)


def test_a_class_that_was_renamed_is_gone_on_with_if_that_is_said_and_noted(folder: Folder) -> None:
    folder.cut_back()
    (folder.photos / "red").rename(folder.photos / "rosy")
    with pytest.raises(
        TrainingError, match="'rosy' is new.*if they only have new names, continue by `data_changed=True`"
    ):
        folder.go_on()
    result = folder.go_on(data_changed=True)
    assert result.classifier.class_names == ("green", "rosy")
    (change,) = data_changes(folder.run)
    assert change["what"][0] == "the class 'red' is now called 'rosy'"
    assert json.loads((folder.run / "data.json").read_text())["class_names"] == ["green", "rosy"]
    folder.go_on()  # they are the run's own now


def test_the_first_classifier_and_the_baselines_are_of_the_data_as_they_are_now(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.begin(baselines=True)
    folder.cut_back()
    (folder.run / "classifier").mkdir()
    shutil.copytree(folder.run / "first", folder.run / "classifier", dirs_exist_ok=True)
    (folder.photos / "red").rename(folder.photos / "rosy")
    for index in range(6):
        (folder.photos / "rosy" / f"{index}.jpg").unlink()
    result = folder.go_on(data_changed=True)
    for name in ("first", "classifier"):
        made = load(folder.run / name)
        assert made.class_names == ("green", "rosy")
        assert made.provenance.training["data_fingerprint"] == open_data(folder.photos).fingerprint
    assert result.baselines is not None
    assert result.baselines.num_train == len(open_data(folder.photos).splits["train"])


def test_a_name_that_changes_the_order_of_the_classes_is_another_class(folder: Folder) -> None:
    folder.cut_back()
    (folder.photos / "red").rename(folder.photos / "crimson")  # before green: its images would count as green's
    with pytest.raises(TrainingError, match="'crimson' is new"):
        folder.go_on(data_changed=True)


def test_what_was_asked_is_there_before_anything_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill before the recipe is there leaves what it takes to begin as the same run."""
    folder = Folder(tmp_path)

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("vitral.training.starting.opening.open_data", killed)
        with pytest.raises(KeyboardInterrupt):
            folder.begin(seed=5)
    assert sorted(path.name for path in folder.run.iterdir()) == ["run.json"]
    for other in ({"seed": 7}, {"overrides": ("optimizer.lr=1",)}, {"image_size": 48}, {"source": "vit-nano16"}):
        with pytest.raises(TrainingError, match="cannot continue with"):
            folder.go_on(**other)
    folder.go_on()
    recipe = load_recipe(folder.run / "recipe.toml")
    assert (recipe.seed, recipe.steps, recipe.batch_size, recipe.image_size) == (5, 6, 8, 32)
    resumed = folder.weights()
    shutil.rmtree(folder.run)
    result = folder.begin(seed=5)
    assert folder.weights() == resumed
    assert "--set steps=6" in commands_of(result)
    assert "--seed 5 --no-baselines" in commands_of(result)


def test_a_slip_leaves_no_run_behind(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    (folder.photos / "red" / "0.jpg").write_bytes(b"no image")
    with pytest.raises(ImageError, match=r"red/0\.jpg"):
        folder.begin(skip_bad_images=False)
    assert not folder.run.exists()
    for number in range(10):  # too many to be left out unasked
        (folder.photos / "red" / f"{number}.jpg").write_bytes(b"no image")
    with pytest.raises(ImageError, match="10 of 28 "):
        folder.begin()
    assert not folder.run.exists()


class TestLength:
    """A resume does not change the plan."""

    def test_a_finished_run_is_finished(self, folder: Folder) -> None:
        weights = folder.weights()
        assert folder.go_on().training.steps == 6
        assert folder.weights() == weights
        assert any("This training is finished" in event.text for event in folder.said if isinstance(event, Message))
        assert folder.go_on(overrides=("steps=8",)).training.steps == 8
        assert "was changed from 6 to 8 steps after step 6" in (folder.run / "recipe.toml").read_text()

    def test_the_report_says_what_was_asked_last_and_what_the_recipe_gives(self, folder: Folder) -> None:
        asked, again = commands_of(folder.go_on()).splitlines()
        assert "steps=6" in asked
        assert again.endswith("# the same weights again")
        folder.go_on(time="60s", overrides=("steps=8",))
        asked, again = commands_of(folder.go_on()).splitlines()  # what is not said anew holds
        assert "--time 1m" in asked
        assert "steps=8" in asked
        assert "steps=6" not in asked
        first = (folder.run / "recipe.toml").read_text().splitlines()[0]
        assert "not give the same weights: its length was changed from 6 to 8" in first
        assert again.partition("# not the same weights again: ")[2] == first.partition("same weights: ")[2]

    def test_a_lengthened_run_that_was_killed_at_once_goes_on_to_its_new_length(self, folder: Folder) -> None:
        folder.go_on(overrides=("steps=8",))
        weights = folder.weights()
        folder.lose("step-00000008")
        assert folder.go_on().training.steps == 8
        assert folder.weights() == weights
        first = (folder.run / "recipe.toml").read_text().splitlines()[0]
        assert first.count("its length was changed from 6 to 8 steps after step 6") == 1

    def test_more_time_that_was_not_used_is_there_after_a_kill(self, folder: Folder) -> None:
        folder.go_on(overrides=("steps=8",))  # and then as if a budget had made 6 of these 8 steps
        folder.lose("step-00000008")
        path = folder.run / "checkpoints" / "step-00000006" / "state.json"
        path.write_text(
            json.dumps(json.loads(path.read_text()) | {"recipe_steps": 8, "bends": [[3, 6]], "bend_step": 3})
        )
        assert folder.go_on().training.steps == 6
        assert folder.go_on(time="10m").training.steps == 8
        folder.lose("step-00000008")
        assert folder.go_on().training.steps == 8
        assert folder.go_on().training.steps == 8  # and that is its end

    @pytest.mark.long
    def test_what_a_budget_made_of_a_run_can_be_made_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """By a clock that only updates move on, by a second."""
        folder, seconds = Folder(tmp_path), [0.0]

        def pass_time(event: Event) -> None:
            seconds[0] += isinstance(event, Progress) and event.task == "train"

        monkeypatch.setattr(opening, "Clock", lambda budget, started: Clock(budget, 0.0, lambda: seconds[0]))
        long = tuple(setting.replace("steps=6", "steps=5000") for setting in SETTINGS)
        steps = folder.begin(overrides=long, time="3m", listener=pass_time).training.steps
        assert 30 < steps < 1000
        weights = folder.weights()
        recipe = load_recipe(folder.run / "recipe.toml")
        assert recipe.schedule.bends
        assert recipe.schedule.bends[-1][1] == steps
        assert folder.go_on().training.steps == steps  # finished, whatever the recipe's own length
        assert folder.weights() == weights
        shutil.copy(folder.run / "recipe.toml", tmp_path / "again.toml")
        again = Folder(tmp_path / "again")
        shutil.rmtree(again.photos)
        shutil.copytree(folder.photos, again.photos)
        result = again.begin(overrides=(), image_size=None, recipe=tmp_path / "again.toml")
        assert result.training.steps == steps
        assert again.weights() == weights


def test_another_number_of_threads_is_said(folder: Folder) -> None:
    run = json.loads((folder.run / "run.json").read_text())
    run["environment"]["threads"] += 1
    (folder.run / "run.json").write_text(json.dumps(run))
    folder.cut_back()
    folder.go_on()
    assert "threads 2, now 1" in folder.warnings()
    assert json.loads((folder.run / "run.json").read_text())["resumed_with"][0]["threads"] == 1
    assert "by other means" in (folder.run / "recipe.toml").read_text()


def test_the_fingerprint_is_of_the_data_wherever_they_lie(tmp_path: Path) -> None:
    write_images(tmp_path / "a", {"x": 4, "y": 4})
    shutil.copytree(tmp_path / "a", tmp_path / "b" / "c")
    one, other = open_data(tmp_path / "a"), open_data(tmp_path / "b" / "c")
    assert one.fingerprint == other.fingerprint
    assert one.inventory == other.inventory
    unverified = open_data(tmp_path / "a", verify=False)
    assert unverified.fingerprint == one.fingerprint
    Image.new("RGB", (8, 8)).save(tmp_path / "a" / "x" / "0.jpg")
    assert open_data(tmp_path / "a").fingerprint != one.fingerprint


class TestSplits:
    """A run keeps its splits: those of look-alikes and groups, and those that a version before drew without them."""

    def test_a_run_of_a_version_without_look_alikes_keeps_its_splits(self, tmp_path: Path) -> None:
        folder = Folder(tmp_path)
        shutil.rmtree(folder.photos)
        write_exposures(folder.photos, {"red": 8, "green": 8})
        older, data = open_data(folder.photos, near=False), open_data(folder.photos)
        assert older.inventory != data.inventory
        folder.begin()
        assert read_run(folder.run)["data_fingerprint"] == data.fingerprint
        for before in (data, older):
            update_run(folder.run, {"data_fingerprint": before.fingerprint})
            keep_data(folder.run, before, {})
            folder.cut_back()
            result = folder.go_on()
            assert result.run.data.inventory == before.inventory
            assert load(folder.run).provenance.training["data_fingerprint"] == before.fingerprint
        scored, _ = open_split(
            folder.photos,
            [load(folder.run)],
            split=None,
            classes=None,
            skip_bad_images=False,
            listener=folder.said.append,
        )
        assert scored.inventory == older.inventory
        assert folder.go_on(overrides=("steps=8",)).run.data.inventory == older.inventory
        again = finetune(folder.photos, source=folder.run, out=tmp_path / "next", overrides=SETTINGS, baselines=False)
        assert again.run.data.inventory == older.inventory  # what the start learned is not scored

    def test_a_run_keeps_its_groups(self, tmp_path: Path) -> None:
        folder = Folder(tmp_path)
        result = folder.begin(group="series")
        assert "/group=" in result.run.data.fingerprint
        assert result.run.request.call().count("group='series'") == 1
        assert all("series" in json.dumps(read_run(folder.run)[name]) for name in ("request", "notes"))
        folder.cut_back()
        assert folder.go_on().run.data.fingerprint == result.run.data.fingerprint
        with pytest.raises(TrainingError, match="group"):
            folder.go_on(group="folder")
