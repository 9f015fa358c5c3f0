"""The function of a batch that clusters carry: small, loaded once a process, every form of batch and image, errors in rows."""

import io
import pickle
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from PIL import Image

import vitral
from tests.cases import every_case
from tests.conftest import TINY
from vitral.classifier.bulk import batch_predictor
from vitral.classifier.folder import save
from vitral.classifier.metadata import Calibration
from vitral.classifier.novelty import KnownImages, Novelty
from vitral.errors import DataError, ModelError, VitralError, WeightsError
from vitral.images.preprocessing import PHOTOS
from vitral.models.families import build

LIMIT = Novelty("mahalanobis", 5.0, 0.05, 0.1, 0.2, "b", 0.9, 40, learned=False)
COUNT = 5


def made(seed: int) -> vitral.Classifier:
    model = build(TINY, seed=seed)
    torch.nn.init.normal_(model.head.weight, std=2.0, generator=torch.Generator().manual_seed(seed))
    return vitral.Classifier(model, PHOTOS.with_size(16), ("a", "b", "c"))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with photos, the classifier "plain", and "doubtful", which has a threshold and knows its images."""
    home = tmp_path_factory.mktemp("batches")
    save(made(0), home / "plain")
    doubtful = made(0)
    seen = torch.stack([doubtful.preprocessing(pixels(seed)) for seed in range(60)])
    known = KnownImages(doubtful.predictor.features(seen), torch.arange(60) % 3, torch.arange(60) >= 48)
    doubtful.remember(known, LIMIT)
    doubtful.calibration = Calibration(2.0, 0.9, 0.95, "noise", 60)
    save(doubtful, home / "doubtful")
    (home / "photos").mkdir()
    for index in range(COUNT):
        (home / "photos" / f"{index}.png").write_bytes(encoded(index))
    return home


def pixels(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (24, 30, 3), dtype=np.uint8)


def encoded(seed: int) -> bytes:
    held = io.BytesIO()
    Image.fromarray(pixels(seed)).save(held, "PNG")
    return held.getvalue()


def paths(home: Path) -> list[str]:
    return [str(home / "photos" / f"{index}.png") for index in range(COUNT)]


def says(home: Path, name: str = "plain", top: int = 5) -> list[vitral.classifier.prediction.Prediction]:
    return vitral.load(home / name).predict(paths(home), top=top)


def close(column: Any, expected: list[float]) -> bool:  # noqa: ANN401  # an array or a list
    return bool(np.allclose(np.array(column, dtype=np.float64), expected, atol=1e-6))


def test_it_is_small_and_the_same_after_it_is_sent(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    predictor = vitral.BatchPredictor("plain")
    sent = pickle.dumps(predictor)
    assert len(sent) < 500
    monkeypatch.chdir("/")  # as a worker's
    found = pickle.loads(sent)({"image": [encoded(0)]})
    assert found["label"] == predictor({"image": [encoded(0)]})["label"] == [says(home)[0].label]


def test_a_process_loads_a_classifier_once_until_it_changes(home: Path, tmp_path: Path) -> None:
    shutil.copytree(home / "plain", tmp_path / "own")
    first = vitral.BatchPredictor(tmp_path / "own", top=1)
    loaded = batch_predictor._loaded.cache_info().misses
    before = first({"image": [encoded(0)]})
    pickle.loads(pickle.dumps(first))({"image": [encoded(1)]})
    assert batch_predictor._loaded.cache_info().misses == loaded + 1
    save(made(3), tmp_path / "own")
    again = vitral.BatchPredictor(tmp_path / "own", top=1)
    assert pickle.dumps(again) != pickle.dumps(first)  # by which datasets tells that it has to compute anew
    assert again({"image": [encoded(0)]})["probability"] != before["probability"]


def forms(home: Path) -> dict[str, list[Any] | np.ndarray]:
    files = paths(home)
    contents = [Path(path).read_bytes() for path in files]
    arrays = [pixels(seed) for seed in range(COUNT)]
    return {
        "bytes": contents,
        "objects": np.array(contents, dtype=object),
        "views": [memoryview(content) for content in contents],
        "paths": files,
        "addresses": [f"file://{path}" for path in files],
        "structs": [{"bytes": content, "path": None} for content in contents],
        "structs of paths": [{"bytes": None, "path": path} for path in files],
        "one array": np.stack(arrays),
        "arrays": arrays,
        "images": [Image.fromarray(array) for array in arrays],
    }


def test_every_form_of_image_has_the_answers_of_predict(home: Path) -> None:
    expected = says(home, top=2)
    predictor = vitral.BatchPredictor(home / "plain", top=2, batch_size=2, threads=1)
    for name, column in forms(home).items():
        found = predictor({"image": column})
        assert found["error"] == [""] * COUNT, name
        assert found["label"] == [one.label for one in expected], name
        assert close(found["probability"], [one.probability for one in expected]), name
        assert found["top_labels"] == [[label for label, _ in one.top] for one in expected], name
        assert close(found["top_probabilities"], [[value for _, value in one.top] for one in expected]), name  # type: ignore[misc]


def test_what_the_classifier_tells_besides(home: Path) -> None:
    expected = says(home, "doubtful")
    found = vitral.BatchPredictor(home / "doubtful", features=True)({"image": [*paths(home), None]})
    assert found["sure"] == [one.sure for one in expected] + [False]
    assert found["known"] == [one.known for one in expected] + [False]
    assert close(found["novelty"][:-1], [one.novelty or 0.0 for one in expected])
    prepared = [vitral.load(home / "plain").preprocessing(pixels(seed)) for seed in range(COUNT)]
    features = vitral.load(home / "plain").predictor.features(torch.stack(prepared))
    assert close(found["features"][:-1], features.tolist())
    assert np.isnan(found["features"][-1]).all()
    assert len(found["features"][-1]) == features.shape[1]


def rows(batch: Any) -> list[dict[str, Any]]:  # noqa: ANN401  # of any kind
    """Return a batch's rows, numbers rounded, whatever its kind."""
    if isinstance(batch, Mapping):
        columns = {name: list(column) for name, column in batch.items()}
    elif hasattr(batch, "to_pydict"):
        columns = batch.to_pydict()
    else:
        columns = {name: batch[name].tolist() for name in batch}
    return [dict(zip(columns, map(plain, row), strict=True)) for row in zip(*columns.values(), strict=True)]


def plain(value: Any) -> Any:  # noqa: ANN401  # of any type
    if isinstance(value, list | np.ndarray):
        return [plain(one) for one in value]
    return round(float(value), 4) if isinstance(value, float | np.floating) else value


def test_a_batch_comes_back_as_what_it_was(home: Path) -> None:
    pandas = pytest.importorskip("pandas")
    predictor = vitral.BatchPredictor(home / "doubtful", features=True)
    columns = {"content": [encoded(0), encoded(1)], "taken": [2024, 2025]}
    expected = rows(predictor(columns))
    assert [row["taken"] for row in expected] == [2024, 2025]
    assert "content" not in expected[0]
    for batch in (pa.table(columns), pa.RecordBatch.from_pydict(columns), pandas.DataFrame(columns, index=[7, 8])):
        found = predictor(batch)
        assert type(found) is type(batch)
        assert rows(found) == expected
    assert list(predictor(pandas.DataFrame(columns, index=[7, 8])).index) == [7, 8]


def test_what_cannot_be_read_is_a_row_with_its_error(home: Path) -> None:
    bad: list[Any] = [b"no image", b"", None, "", str(home / "gone.jpg"), str(home), 3.5, np.zeros((4, 4, 3)), {}]
    found = vitral.BatchPredictor(home / "plain", batch_size=4)(
        {"image": [encoded(0), *bad, encoded(1)], "id": range(11)}
    )
    errors = found["error"]
    assert [bool(error) for error in errors] == [False, *[True] * len(bad), False]
    assert all("\n" not in error for error in errors)
    assert str(home / "gone.jpg") in errors[5]
    good = rows(vitral.BatchPredictor(home / "plain")({"image": [encoded(0), encoded(1)]}))
    assert [found["label"][0], found["label"][-1]] == [row["label"] for row in good]
    assert set(found["label"][1:-1]) == {""}
    assert np.isnan(found["probability"][1:-1]).all()


@every_case("cells", [[], [None, b"no image"]], ids=lambda cells: f"{len(cells)} rows")
def test_types_do_not_hang_on_what_can_be_read(home: Path, cells: list[bytes | None]) -> None:
    predictor = vitral.BatchPredictor(home / "doubtful", features=True)
    readable = predictor(pa.table({"image": [encoded(0)]}))
    found = predictor(pa.table({"image": pa.array(cells, type=pa.binary())}))
    assert found.schema == readable.schema
    assert len(found) == len(cells)


@every_case(
    ("columns", "options", "error"),
    [
        ({"a": [1], "b": [2]}, {}, DataError),
        ({}, {}, DataError),
        ({"image": [b""], "b": [2]}, {"column": "c"}, DataError),
        ({"image": [b""], "label": [2]}, {}, DataError),
        ([b""], {}, DataError),
    ],
    ids=["no column", "none at all", "another", "label", "rows"],
)
def test_a_batch_that_has_no_answer(
    home: Path,
    columns: Any,  # noqa: ANN401  # some are wrong
    options: dict[str, str],
    error: type[VitralError],
) -> None:
    with pytest.raises(error) as raised:
        vitral.BatchPredictor(home / "plain", **options)(columns)  # type: ignore[arg-type]
    assert "\n" not in str(raised.value)
    assert type(pickle.loads(pickle.dumps(raised.value))) is error  # on its way back from a worker


def test_answers_beside_labels_of_the_rows(home: Path) -> None:
    found = vitral.BatchPredictor(home / "plain", prefix="predicted_", top=1)({"image": [encoded(0)], "label": [2]})
    assert list(found) == ["label", "predicted_label", "predicted_probability", "predicted_error"]


@every_case("options", [{"top": 0}, {"batch_size": 0}, {"threads": 0}])
def test_numbers_below_one_are_refused_before_anything_is_sent(options: dict[str, int]) -> None:
    with pytest.raises(ModelError):
        vitral.BatchPredictor("runs/photos", **options)  # type: ignore[arg-type]


def test_a_classifier_is_given_by_name(home: Path) -> None:
    with pytest.raises(ModelError):
        vitral.BatchPredictor(vitral.load(home / "plain"))  # type: ignore[arg-type]
    with pytest.raises(WeightsError):
        vitral.BatchPredictor("runs/none-here")({"image": [b""]})


@pytest.fixture
def dataset(home: Path) -> Any:  # noqa: ANN401  # of Hugging Face
    """The photos as a dataset, the third of them damaged, with labels of its own."""
    datasets = pytest.importorskip("datasets")
    cells = [{"bytes": b"no image" if index == 2 else encoded(index), "path": None} for index in range(COUNT)]
    features = {"image": datasets.Image(decode=False), "label": datasets.ClassLabel(names=["x", "y"])}
    return datasets.Dataset.from_dict({"image": cells, "label": [0, 1, 0, 1, 0]}, features=datasets.Features(features))


@pytest.mark.parametrize("processes", [None, 2])
def test_datasets_take_it_in_several_processes(home: Path, dataset: Any, processes: int | None) -> None:  # noqa: ANN401
    predictor = vitral.BatchPredictor(home / "plain", prefix="predicted_", threads=1)
    predictor({"image": [encoded(0)]})  # loaded here, too, before processes are forked off
    found = dataset.map(
        predictor, batched=True, batch_size=2, num_proc=processes, remove_columns="image", load_from_cache_file=False
    )
    expected = says(home)
    readable = [index for index in range(COUNT) if index != 2]
    assert [found[index]["predicted_label"] for index in readable] == [expected[index].label for index in readable]
    assert [bool(row["predicted_error"]) for row in found] == [index == 2 for index in range(COUNT)]
    assert found["label"][:] == [0, 1, 0, 1, 0]
