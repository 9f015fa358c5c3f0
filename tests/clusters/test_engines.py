"""Ray, Spark, Daft and datasets on clusters of this machine: the page's programs, and workers that are killed in the midst."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

import vitral
from tests.clusters.conftest import PER_CLASS
from tests.docs.pages import ROOT, blocks

pytestmark = pytest.mark.clusters

DEPLOY = ROOT / "deploy"
COUNT = 3 * PER_CLASS + 1
SETTINGS = ("steps=1500", "batch_size=8", "workers=0", "checkpoint.every_steps=20", "image_size=16", "precision=fp32")
ENVIRONMENT = {
    **os.environ,
    # Other programs of this machine are no reason to end or to starve ours.
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_worker_niceness": "0",
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "200",
    "RAY_USAGE_STATS_ENABLED": "0",
    "PYSPARK_PYTHON": sys.executable,
    "PYSPARK_DRIVER_PYTHON": sys.executable,
}
# What the local cluster of each is, begun before the page's program. Ray's readers need cores beside its predictors'.
LOCAL = {
    "Ray Data": "import ray; ray.init(num_cpus=4, include_dashboard=False)\n",
    "Hugging Face datasets": "",
    "Spark": (
        "from pyspark.sql import SparkSession\n"
        "SparkSession.builder.master('local[2,4]').config('spark.ui.enabled', False).getOrCreate()\n"
    ),
    "Daft": "",
}
# A predictor whose process is killed at its first batch, once in all.
DYING = """
import os, signal, vitral

class Dying(vitral.BatchPredictor):
    def __call__(self, batch):
        try:
            os.close(os.open(os.environ["KILLED"], os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return super().__call__(batch)
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def folder(here: Path, tmp_path: Path) -> Path:
    """A copy of the photos and the classifier."""
    return shutil.copytree(here, tmp_path / "here")


def program(heading: str) -> str:
    """Return the page's program for an engine, after what begins its cluster on this machine."""
    page = ROOT / "docs" / "how-to" / "clusters.md"
    (block,) = (block for block in blocks(page) if block.heading == heading and block.language == "python")
    return LOCAL[heading] + block.text


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    more = {"PYTHONPATH": f"{ROOT}:{folder}", "KILLED": str(folder / "killed")}
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=ENVIRONMENT | more,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


def run_program(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(text)
    return run(folder, "program.py")


def check_answers(folder: Path) -> None:
    """Check that every photo has the answer of `Classifier.predict`, and the damaged one its error."""
    (found,) = folder.glob("predictions*")
    rows = pq.read_table(found).to_pylist()
    assert len(rows) == COUNT
    prefix = "" if "error" in rows[0] else "predicted_"
    expected = vitral.load(folder / "runs" / "photos").predict(folder / "photos", skip_bad_images=True)
    readable = [row for row in rows if not row[f"{prefix}error"]]
    assert len(readable) == COUNT - 1
    assert Counter(row[f"{prefix}label"] for row in readable) == Counter(one.label for one in expected)
    if "path" not in rows[0]:
        return
    answers = {tuple(Path(one.source).parts[-2:]): one for one in expected}
    for row in readable:
        known = answers[tuple(Path(row["path"]).parts[-2:])]
        assert row["label"] == known.label
        assert row["probability"] == pytest.approx(known.probability, abs=1e-5)


@pytest.mark.parametrize("engine", LOCAL)
def test_the_pages_program_answers_as_predict_does(engine: str, folder: Path) -> None:
    done = run_program(folder, program(engine))
    assert done.returncode == 0, done.stderr[-3000:]
    check_answers(folder)


@pytest.mark.parametrize("engine", ["Ray Data", "Spark"])
def test_a_killed_worker_costs_nothing(engine: str, folder: Path) -> None:
    (folder / "dying.py").write_text(DYING)
    done = run_program(folder, "import dying\n" + program(engine).replace("vitral.BatchPredictor", "dying.Dying"))
    assert done.returncode == 0, done.stderr[-3000:]
    assert (folder / "killed").exists()
    check_answers(folder)


@pytest.mark.parametrize("engine", ["Hugging Face datasets"])
def test_a_killed_worker_ends_the_job_which_is_given_again(engine: str, folder: Path) -> None:
    (folder / "dying.py").write_text(DYING)
    text = "import dying\n" + program(engine).replace("vitral.BatchPredictor", "dying.Dying")
    assert run_program(folder, text).returncode != 0
    assert not list(folder.glob("predictions*"))
    assert run_program(folder, text).returncode == 0
    check_answers(folder)


def test_ray_hands_a_predictor_to_actors_and_pixels_to_it(folder: Path) -> None:
    text = """
import json, pathlib
paths = [str(path) for path in pathlib.Path("photos").absolute().rglob("[0-9]*.jpg")]
photos = ray.data.read_images(paths, include_paths=True)
actors = ray.data.ActorPoolStrategy(size=2)
named = (str(pathlib.Path("runs/photos").absolute()),)
answers = photos.map_batches(vitral.BatchPredictor, fn_constructor_args=named, batch_size=8, compute=actors)
rows = [[row["path"], row["label"], list(row["top_labels"])] for row in answers.take_all()]
pathlib.Path("rows.json").write_text(json.dumps(rows))
"""
    done = run_program(folder, LOCAL["Ray Data"] + "import vitral\n" + text)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = json.loads((folder / "rows.json").read_text())
    assert len(rows) == COUNT - 1
    for path, label, top in rows:
        (known,) = vitral.load(folder / "runs" / "photos").predict(path)
        assert (label, top) == (known.label, [name for name, _ in known.top])


def test_ray_train_loses_a_worker_and_goes_on_to_the_end(folder: Path) -> None:
    words = ["ray_train.py", "photos", "runs/new", "--from", "runs/photos", "--workers", "2", "--set", *SETTINGS]
    text = f"import runpy, sys\nsys.argv = {words}\nrunpy.run_path({str(DEPLOY / 'ray_train.py')!r}, run_name='__main__')\n"
    with ThreadPoolExecutor(1) as pool:
        ending = pool.submit(run_program, folder, LOCAL["Ray Data"] + text)
        while not ending.done() and not (folder / "runs" / "new" / "checkpoints" / "last").exists():
            time.sleep(0.1)
        workers = below(os.getpid(), "ray::RayTrainWorker")
        for worker in workers[:1]:
            os.kill(worker, signal.SIGKILL)
        done = ending.result()
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(workers) == 2
    assert "ProcessLost" in done.stdout + done.stderr
    assert json.loads((folder / "runs" / "new" / "evaluation.json").read_text())["num_examples"] > 0


def below(pid: int, name: str) -> list[int]:
    """Return the processes of a name that a process has begun, itself or by others."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(entry.parent.name)] = int(entry.read_text().rpartition(")")[2].split()[1])

    def descends(child: int) -> bool:
        return child == pid or (child in parents and descends(parents[child]))

    return [child for child in parents if descends(child) and name in command_of(child)]


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:  # it has ended
        return ""


def test_kubeflow_takes_the_train_job() -> None:
    models = pytest.importorskip("kubeflow_trainer_api.models")
    job: dict[str, Any] = yaml.safe_load((DEPLOY / "trainjob.yaml").read_text())
    read = models.TrainerV1alpha1TrainJob.from_dict(job).to_dict()
    assert lost(job, read) == []


def lost(given: Any, read: Any, place: str = "") -> list[str]:  # noqa: ANN401  # any JSON
    """Return the places of what was given and not read: Kubeflow's types pass over fields that they do not know."""
    if isinstance(given, dict):
        return [each for key, value in given.items() for each in lost(value, (read or {}).get(key), f"{place}/{key}")]
    if isinstance(given, list):
        pairs = zip(given, read or [None] * len(given), strict=True)
        return [each for number, (one, other) in enumerate(pairs) for each in lost(one, other, f"{place}/{number}")]
    return [] if read is not None else [place]
