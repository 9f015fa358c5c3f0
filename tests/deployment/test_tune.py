"""`vitral tune`: the most accurate setting within the limit on real digits; the folder keeps it and every command takes it."""

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits

import vitral
from tests.cases import every_case
from vitral.classifier.classifier import Classifier
from vitral.classifier.load import load
from vitral.cli.main import main
from vitral.data.generated import open_digits
from vitral.deployment import tune as tuning
from vitral.deployment.bench import Bench
from vitral.deployment.judge import Judge
from vitral.deployment.tune import Tuned, read_latency, tune
from vitral.errors import DataError, VitralError, WeightsError
from vitral.evaluation import candidates as module
from vitral.evaluation.candidates import TimedSetting, candidates, image_sizes, merge_counts
from vitral.evaluation.opening import times_opened
from vitral.events import Event, Message, ignore
from vitral.inference.engines import Computation
from vitral.inference.predictor import Predictor
from vitral.models.families import create_model
from vitral.report.speed_charts import TUNE_MARK, tuning_chart

COSTS = {"fp32": 1.0, "bf16": 0.6, "int8": 0.5}


def cost(predictor: Predictor) -> float:
    """What an image takes: by its pixels, in less precision less, and merging saves a little."""
    area = float(np.prod(predictor.image_size)) / 28**2
    words = predictor.computed_by
    merged = int(words.split(", ")[1].split()[0]) if "merged" in words else 0
    precision = next(name for name in COSTS if name in words)
    return 10.0 * area * COSTS[precision] * 0.97**merged


@contextlib.contextmanager
def timed_by_cost() -> Iterator[None]:
    """Times are not what is tested: each setting gets the one that its operations would take, and runtimes are as fast."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "milliseconds", cost)
        patch.setattr(tuning, "milliseconds", cost)
        patch.setattr(module, "SHARES", (3 / 4, 1 / 2))  # fewer, sooner
        patch.setattr(module, "MERGED", (1 / 2,))
        yield


@pytest.fixture
def timed() -> Iterator[None]:
    with timed_by_cost():
        yield


@pytest.fixture(scope="module")
def tuned_once(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = shutil.copytree(trained, tmp_path_factory.mktemp("tuned") / "run")
    with timed_by_cost():
        tune(run, "digits", latency="4ms", write=True, listener=ignore)
    return run


@pytest.fixture
def tuned(tuned_once: Path, tmp_path: Path) -> Path:
    """The run, tuned to 4 ms."""
    return shutil.copytree(tuned_once, tmp_path / "tuned")


def digit(folder: Path, number: int = 7) -> Path:
    image = Image.fromarray((255 - load_digits().images[number] * 15.9).astype(np.uint8)).resize((56, 56))
    path = folder / f"digit-{number}.png"
    image.convert("RGB").save(path)
    return path


def said(call: Callable[..., object]) -> str:
    messages: list[str] = []

    def listener(event: Event) -> None:
        if isinstance(event, Message):
            messages.append(event.text)

    call(listener)
    return " ".join(messages)


@pytest.mark.usefixtures("timed")
def test_the_best_within_the_limit_is_chosen_and_kept(run: Path) -> None:
    weights = (run / "classifier/weights.safetensors").read_bytes()
    before = json.loads((run / "classifier/classifier.json").read_text())
    opened = times_opened(run / "classifier")
    found = tune(run, "digits", latency="6ms", listener=ignore)
    assert json.loads((run / "classifier/classifier.json").read_text()) == before  # nothing is written unasked
    found = tune(run, "digits", latency="6ms", write=True, listener=ignore)
    assert times_opened(run / "classifier") == opened  # test images stay unseen
    chosen = found.setting
    assert chosen is not None
    assert chosen.exact > 0.9
    assert chosen.milliseconds <= 6
    within = [one for one in found.tried if one.candidate.milliseconds <= 6]
    best = max(one.score for one in within)
    assert chosen.score == best
    nearest = min((one for one in within if one.score == best), key=lambda one: one.largest)
    assert (chosen.image_size, chosen.way) == (nearest.candidate.image_size, nearest.way)
    after = json.loads((run / "classifier/classifier.json").read_text())
    assert {name: value for name, value in after.items() if name != "setting"} == before
    assert (run / "classifier/weights.safetensors").read_bytes() == weights
    assert "Tuned to 6 ms" in (run / "classifier/README.md").read_text()


@pytest.mark.long
@pytest.mark.usefixtures("timed")
def test_scores_are_those_of_the_validation_images_by_that_setting(run: Path) -> None:
    found = tune(run, "digits", latency="6ms", write=True, listener=ignore)
    assert found.images == len(open_digits().splits["validation"])
    assert found.setting is not None
    for one in found.tried[:: max(1, len(found.tried) // 4)]:
        way, size = one.candidate.way, one.candidate.image_size
        classifier = load(
            run, image_size=size, engine=way.engine, precision=way.precision, merge=way.merge, listener=ignore
        )
        scored = vitral.evaluate(classifier, "digits", split="validation", listener=ignore)
        assert one.score == pytest.approx(scored.headline(), abs=1e-9)
    tuned = vitral.evaluate(str(run), "digits", split="validation", listener=ignore)
    assert tuned.headline() == pytest.approx(found.setting.score, abs=1e-9)


def test_everything_computes_by_the_setting_unless_it_is_told_otherwise(run: Path, tuned: Path, tmp_path: Path) -> None:
    own, classifier = load(run, listener=ignore), load(tuned, listener=ignore)
    setting = classifier.setting
    assert setting is not None
    assert setting.image_size != own.model.image_size
    photo = digit(tmp_path)
    assert classifier.model.image_size == classifier.preprocessing.image_size == setting.image_size
    assert classifier.predictor.computed_by == str(setting.way)
    asked = load(tuned, image_size=setting.image_size[0], **vars(setting.way), listener=ignore)
    assert classifier.predict(photo)[0].top == asked.predict(photo)[0].top
    exact = load(tuned, precision="fp32", listener=ignore)
    assert exact.predict(photo)[0].top == own.predict(photo)[0].top  # to the last bit, whatever was tuned
    assert "Left aside" in said(lambda listener: load(tuned, precision="fp32", listener=listener))
    assert load(tuned, tuned=False, listener=ignore).model.image_size == own.model.image_size


@every_case(("name", "way"), [("slices.slices", ["--by", "folder"]), ("frozen.score_frozen", ["--frozen", "knn"])])
def test_parts_of_the_images_and_frozen_features_are_scored_by_the_network_itself(
    tuned: Path, monkeypatch: pytest.MonkeyPatch, name: str, way: list[str]
) -> None:
    own = load(tuned, tuned=False, listener=ignore)
    assert load(tuned, listener=ignore).model.image_size != own.model.image_size
    scored: list[Classifier] = []

    def score(classifier: Classifier, **given: object) -> None:
        scored.append(classifier)
        raise VitralError("That is enough.")

    monkeypatch.setattr(f"vitral.evaluation.{name}", score)
    for more in ([], ["--precision", "fp32"]):
        assert main(["evaluate", "--data", "digits", "--classifier", str(tuned), *way, *more]) == 1
    assert [one.model.image_size for one in scored] == [own.model.image_size] * 2
    assert [one.predictor.computed_by for one in scored] == [own.predictor.computed_by] * 2


def test_training_goes_on_from_the_network_itself(run: Path, tuned: Path, tmp_path: Path) -> None:
    own = load(run, listener=ignore).model
    still = ["steps=2", "optimizer.lr=1e-9", "optimizer.weight_decay=0"]
    vitral.finetune(
        "digits", source=str(tuned), out=tmp_path / "next", overrides=still, baselines=False, listener=ignore
    )
    after = load(tmp_path / "next", listener=ignore)
    assert after.setting is None
    assert after.model.image_size == own.image_size
    positions = own.state_dict()["position.embedding"]  # resized there and back they would be others
    torch.testing.assert_close(after.model.state_dict()["position.embedding"], positions, rtol=0, atol=1e-5)


@pytest.mark.usefixtures("timed")
def test_commands_say_what_they_compute_by(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", str(run), "--latency", "4 ms", "--data", "digits", "--write"]) == 0
    shown = capsys.readouterr().out
    assert "chosen" in shown
    drawing = run / "classifier/tuning.svg"
    assert f"Plot  {drawing}" in shown
    assert TUNE_MARK in drawing.read_bytes()
    assert main(["predict", str(digit(tmp_path)), "--classifier", str(run)]) == 0
    assert "Tuned to 4 ms a photo" in capsys.readouterr().err
    out = tmp_path / "rows.csv"
    assert main(["predict", str(digit(tmp_path)), "--classifier", str(run), "--out", str(out)]) == 0
    assert "Tuned to 4 ms" in capsys.readouterr().err
    assert main(["evaluate", "--data", "digits", "--classifier", str(run), "--json"]) == 0
    assert "Tuned to 4 ms" in capsys.readouterr().err


def test_bench_measures_size_and_merging_of_the_setting(tuned: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = load(tuned, listener=ignore).setting
    assert setting is not None
    measured: list[tuple[tuple[int, int], int]] = []

    def noted(classifier: Classifier, *, merge: int, **_: object) -> Bench:
        measured.append((classifier.model.image_size, merge))
        raise VitralError("seen")

    monkeypatch.setattr("vitral.deployment.bench.bench", noted)
    assert main(["bench", str(tuned)]) == 1
    assert main(["bench", str(tuned), "--merge", "1"]) == 1
    assert measured == [(setting.image_size, setting.merge), (setting.image_size, 1)]


@pytest.mark.usefixtures("timed")
def test_where_all_take_longer_the_curve_is_shown_and_nothing_written(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (run / "classifier/classifier.json").read_text()
    assert main(["tune", str(run), "--latency", "0.001ms", "--data", "digits"]) == 1
    shown = capsys.readouterr()
    assert "No setting" in shown.err
    assert "within 0.001 ms" in shown.err
    assert "No faster setting is as good" in shown.out
    assert (run / "classifier/classifier.json").read_text() == before
    assert not (run / "classifier/tuning.svg").exists()


@pytest.mark.long
@pytest.mark.usefixtures("timed")
def test_a_setting_that_is_slower_when_it_is_timed_again_is_not_chosen(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = True

    def slower_once(predictor: Predictor) -> float:
        nonlocal first
        taken, first = cost(predictor) * (100 if first else 1), False
        return taken

    without = tune(run, "digits", latency="6ms", listener=ignore).setting
    monkeypatch.setattr(tuning, "milliseconds", slower_once)
    found = tune(run, "digits", latency="6ms", listener=ignore)
    assert found.setting is not None
    assert without is not None
    assert (found.setting.image_size, found.setting.way) != (without.image_size, without.way)
    assert found.setting.milliseconds <= 6


def test_on_another_machine_size_and_merging_stay(tuned: Path) -> None:
    setting = load(tuned, listener=ignore).setting
    assert setting is not None
    description = tuned / "classifier/classifier.json"
    values = json.loads(description.read_text())
    values["setting"] |= {"machine": "another", "merge": 2}
    description.write_text(json.dumps(values))
    assert "This is another machine" in said(lambda listener: load(tuned, listener=listener))
    moved = load(tuned, listener=ignore)
    assert moved.model.image_size == setting.image_size
    assert "2 tokens merged" in moved.predictor.computed_by


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("merge", -1, "merges 0 tokens or more"),
        ("engine", "abacus", "engine"),
        ("image_size", [7, 7], "a setting that its network cannot take"),
        ("milliseconds", "fast", "milliseconds"),
        ("limit", 0, "times above 0"),
    ],
)
def test_a_damaged_setting_is_named(tuned: Path, field: str, value: object, words: str) -> None:
    description = tuned / "classifier/classifier.json"
    values = json.loads(description.read_text())
    values["setting"][field] = value
    description.write_text(json.dumps(values))
    with pytest.raises(WeightsError, match=words):
        load(tuned, listener=ignore)


@pytest.mark.usefixtures("timed")
def test_a_calibration_counts_at_the_size_that_it_was_fitted_at(run: Path) -> None:
    vitral.calibrate(run, "digits", accuracy=0.95, write=True, listener=ignore)
    fitted = load(run, listener=ignore).calibration
    assert fitted is not None
    found = tune(run, "digits", latency="4ms", write=True, listener=ignore)
    assert any("calibration" in remark for remark in found.remarks)
    assert load(run, listener=ignore).calibration is None  # it was fitted at another size
    assert load(run, precision="fp32", listener=ignore).calibration == fitted
    vitral.calibrate(run, "digits", accuracy=0.95, write=True, listener=ignore)
    anew = load(run, listener=ignore).calibration
    assert anew is not None
    assert anew.image_size == load(run, listener=ignore).model.image_size
    assert load(run, precision="fp32", listener=ignore).calibration is None


def test_candidates_are_all_faster_than_what_is_as_exact(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "milliseconds", cost)
    found = candidates(load(trained, listener=ignore), ignore)
    exactness = ("fp32", "bf16", "int8")
    for one in found:
        for other in found:
            if one != other and one.image_size == other.image_size:
                as_exact = exactness.index(other.way.precision) <= exactness.index(one.way.precision)
                beaten = as_exact and other.way.merge <= one.way.merge and other.milliseconds <= one.milliseconds
                assert not beaten, (one, other)
    own = load(trained, listener=ignore).model
    assert {one.way.merge for one in found if one.image_size == own.image_size} == {0, *merge_counts(own)}
    assert found[0].image_size == own.image_size


def test_sizes_are_whole_patches_from_half_to_five_quarters() -> None:
    assert set(image_sizes(create_model("vit-ti16"))) == {(side, side) for side in (224, 192, 160, 144, 112, 288)}


def test_the_frontier_has_no_setting_that_a_faster_one_is_as_good_as(tmp_path: Path) -> None:
    pairs = [(1.0, 0.2), (2.0, 0.5), (3.0, 0.4), (4.0, 0.5), (5.0, 0.9), (6.0, 0.1)]
    tried = tuple(
        tuning.Tried(TimedSetting((28, 28), Computation("torch", "fp32", index), took), score, 1.0, 0.0)
        for index, (took, score) in enumerate(pairs)
    )
    found = Tuned(None, tried, 10.0, "network", 0.9, "accuracy", "data", 100, "machine", 1, 0.5)
    kept = {(one.candidate.milliseconds, one.score) for one in found.frontier()}
    assert kept == {pair for pair in pairs if not any(o[0] < pair[0] and o[1] >= pair[1] for o in pairs)}
    drawn = tuning_chart(found)
    assert {(point.x, point.y) for series in drawn.series if series.name == "fp32" for point in series.points} == set(
        pairs
    )


def test_of_equal_settings_the_one_that_answers_as_the_network_is_chosen(
    trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "milliseconds", lambda predictor: 1.0)
    own = load(trained, listener=ignore)
    judge = Judge(own, open_digits(), most=20, batch_size=8, workers=0, listener=ignore)
    tried = [
        tuning.Tried(TimedSetting(own.model.image_size, Computation("torch", "fp32", merge), took), 1.0, 1.0, largest)
        for merge, took, largest in ((3, 1.0, 0.7), (1, 2.0, 0.1), (2, 3.0, 0.4))
    ]
    chosen, _ = tuning._chosen(own, tried, 10.0, judge, "digits")
    assert chosen is not None
    assert chosen.merge == 1


def test_so_few_photos_all_right_are_not_said_to_be_sure() -> None:
    found = Tuned(None, (), 10.0, "network", 1.0, "accuracy", "photos", 66, "machine", 1, 0.5)
    assert "100.00% (95% interval 94.5% to 100.0%)" in found.lines()[0]


@every_case(("text", "milliseconds"), [("10ms", 10), ("10 MS", 10), ("0.5s", 500), ("7", 7), (2.5, 2.5), (".5s", 500)])
def test_a_latency_is_read(text: str | float, milliseconds: float) -> None:
    assert read_latency(text) == pytest.approx(milliseconds)


@every_case("text", ["", "fast", "-3ms", "0ms", "3m", "nan", "inf", "1e3", "10ms10ms"])
def test_what_is_no_latency_is_refused(text: str) -> None:
    with pytest.raises(DataError, match="no time for a photo"):
        read_latency(text)


def test_times_are_medians_of_the_networks_passes() -> None:
    classifier = Classifier(create_model("vit-mu4"), replace(vitral.load("vit-mu4").preprocessing))
    small, calls = classifier.predictor, []

    class Noted(type(small)):  # type: ignore[misc]
        def logits(self, images: torch.Tensor) -> torch.Tensor:
            calls.append(images.shape)
            return super().logits(images)

    took = module.milliseconds(Noted(classifier.model))
    assert 0 < took < 1000
    assert set(calls) == {(1, 3, *classifier.model.image_size)}
    assert len(calls) >= 2 + module.PASSES


@pytest.mark.usefixtures("timed")
def test_what_cannot_be_kept_is_refused_first(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "vit-mu4", "--latency", "5ms", "--data", "digits", "--write"]) == 1
    assert "Only a classifier folder" in capsys.readouterr().err
    taken = tmp_path / "mine.svg"
    taken.write_text("mine")
    asked = ["tune", str(run), "--latency", "5ms", "--data", "digits", "--plot", str(taken)]
    assert main(asked) == 1
    assert taken.read_text() == "mine"
    assert main(["tune", str(run), "--latency", "5ms", "--data", "digits", "--plot", "curve.png"]) == 1
    assert "let it end in .svg" in capsys.readouterr().err
