"""What is loaded: how many images at once, nothing that pauses answers, exported files, and an end while it loads."""

import gc
import signal
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

import vitral
from tests.conftest import TINY
from tests.forks import Fork, command
from tests.serving.conftest import encoded, form, serving
from vitral.events import ignore
from vitral.images.preprocessing import PHOTOS
from vitral.models.families import build
from vitral.serving.served import Served
from vitral.serving.server import settle

DISTURBED = 3.0  # times the seconds of a pass while other work has the cores


class Timed(Served):
    """A network whose batches take what a table says, every second pass longer by what disturbs it."""

    def __init__(self, seconds: dict[int, float]) -> None:
        super().__init__(
            "timed", vitral.Classifier(build(TINY, seed=0), PHOTOS.with_size(16), ("a", "b", "c")), alone=False
        )
        self.table, self.passes = seconds, 0

    def _timed(self, images: list[Any]) -> float:
        self.passes += 1
        return self.table[len(images)] * (DISTURBED if self.passes % 2 else 1.0)


def at_once(function: Callable[[], Any], until: float) -> Future[Any]:
    done: Future[Any] = Future()
    done.set_result(function())
    return done


def test_a_batch_has_the_size_of_the_best_pace_whatever_disturbs_the_trials() -> None:
    # A runtime that computes two images more slowly than one, as some do, and sixteen best.
    timed = Timed({1: 0.006, 2: 0.016, 4: 0.026, 8: 0.046, 16: 0.085, 32: 0.169})
    timed.warm(at_once)
    assert timed.answers.most == 16
    assert timed.answers.seconds == pytest.approx(0.085 / 16)
    flat = Timed({count: 0.01 * count for count in (1, 2, 4, 8, 16, 32)})
    flat.warm(at_once)
    assert flat.answers.most == 1  # larger ones gain nothing


def test_a_collection_does_not_go_through_what_is_loaded() -> None:
    before = len(gc.get_objects())
    try:
        settle()
        assert len(gc.get_objects()) < before / 10
    finally:
        gc.unfreeze()


@pytest.mark.long
def test_an_exported_file_answers_as_by_predict_and_says_what_it_cannot(served_home: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    vitral.export(served_home / "plain", tmp_path / "plain-onnx", listener=ignore)
    photos = [encoded(seed, side=30 + 10 * seed) for seed in range(3)]
    offline = vitral.load(tmp_path / "plain-onnx", listener=ignore).predict(photos, listener=ignore)
    body, kind = form(*((f"{number}.jpg", photo) for number, photo in enumerate(photos)))
    with serving(tmp_path, "plain-onnx", "--deterministic", engine="onnxruntime") as running:
        found = running.post("/v1/predict", body, kind).json["predictions"]
        assert [[(each["label"], each["probability"]) for each in row["top"]] for row in found] == [
            list(each.top) for each in offline
        ]
        for route in ("/v1/features", "/v1/explain"):
            reply = running.post(route, photos[0])
            assert (reply.status, reply.json["code"]) == (422, "not_possible")
            assert "model.onnx" in reply.json["error"]
        assert running.post("/v1/predict", photos[0]).status == 200


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads as Linux lists them")
def test_ctrl_c_while_an_engine_is_made_ends_in_one_line(served_home: Path) -> None:
    pytest.importorskip("onnxruntime")
    process = Fork(command, ("serve", "plain", "--port", "0", "--engine", "onnxruntime"), folder=served_home)
    while len(list(Path(f"/proc/{process.pid}/task").iterdir())) < 3:  # the main one, the engine's, and the loader
        time.sleep(0.05)
    time.sleep(0.5)  # the engine takes seconds
    process.send_signal(signal.SIGINT)
    done = process.ended(30)
    assert done.returncode == 128 + signal.SIGINT
    assert len(done.stderr.splitlines()) == 1
