"""What is not installed is missed only by what needs it, which says in one line how to install it."""

import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from tests.cases import every_case
from vitral.classifier.bulk.parts import check_suffix
from vitral.data.open import open_data
from vitral.data.vtab.records import TFRecords, _message, parse
from vitral.errors import PackageError
from vitral.training.records.logs import MetricsLog, read_metrics

EXTRAS = ("pyarrow", "pyarrow.parquet", "datasets", "tensorboard", "google.protobuf", "array_record", "msgpack")
COMMANDS = ("check", "finetune", "evaluate", "predict", "explain", "export")
PROJECT = Path(__file__).parents[2]


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation without any extra."""
    for name in [*EXTRAS, *(name for name in sys.modules if name.startswith("google.protobuf."))]:
        monkeypatch.setitem(sys.modules, name, None)


def write_tables(folder: Path) -> None:
    (folder / "lines").mkdir()
    for number in range(6):
        Image.new("RGB", (8, 8), (40 * number, 0, 0)).save(folder / f"{number}.png")
    rows = [(f"{number}.png", "ab"[number % 2]) for number in range(6)]
    (folder / "table.csv").write_text("\n".join(["image,label", *map(",".join, rows)]))
    (folder / "table.jsonl").write_text(
        "\n".join(f'{{"file_name": "{name}", "label": "{label}"}}' for name, label in rows)
    )
    (folder / "table.parquet").write_bytes(b"PAR1")
    (folder / "saved").mkdir()
    (folder / "saved" / "dataset_info.json").write_text("{}")
    (folder / "saved" / "state.json").write_text("{}")


def test_a_table_of_text_needs_none(tmp_path: Path, bare: None) -> None:
    write_tables(tmp_path)
    assert open_data(str(tmp_path / "table.csv")).class_names == ("a", "b")


@every_case(
    ("use", "extra"),
    [
        (lambda folder: open_data(str(folder / "table.jsonl")), "tables"),
        (lambda folder: open_data(str(folder / "table.parquet")), "tables"),
        (lambda folder: check_suffix(folder / "answers.parquet"), "tables"),
        (lambda folder: open_data(str(folder / "saved")), "hub"),
        (lambda folder: open_data("hf:owner/name"), "hub"),
        (lambda folder: parse(b""), "tfds"),
    ],
)
def test_what_needs_one_names_it(tmp_path: Path, bare: None, use: Callable[[Path], object], extra: str) -> None:
    write_tables(tmp_path)
    _message.cache_clear()
    with pytest.raises(PackageError) as error:
        use(tmp_path)
    assert f"pip install 'vitral[{extra}]'" in str(error.value)
    assert "\n" not in str(error.value)
    described = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extra in described
    assert extra in described["all"][0]


def test_a_run_keeps_its_log_without_tensorboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    log = MetricsLog(tmp_path, length=0, first_step=0)
    log.write(1, {"loss": 0.5})
    assert log.flush() > 0
    log.close()
    assert read_metrics(tmp_path) == [{"step": 1, "loss": 0.5}]
    assert not (tmp_path / "tensorboard").exists()


def test_the_main_commands_import_none() -> None:
    program = (
        f"import importlib, sys\nfor name in {EXTRAS}: sys.modules[name] = None\n"
        f"for name in {COMMANDS}: importlib.import_module('vitral.cli.' + name)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_records_are_counted_without_one(tmp_path: Path, bare: None) -> None:
    (tmp_path / "empty.tfrecord").write_bytes(b"")
    assert len(TFRecords(tmp_path / "empty.tfrecord")) == 0
