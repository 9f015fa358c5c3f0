"""`vitral serve` with classifiers of regions: its answers are those of `find_regions`, in every form of request."""

import io
import json
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
import torch
from PIL import Image

import vitral
from tests.cases import every_case
from tests.regions import DRAWN, finding, scene
from tests.serving.conftest import UNHURRIED, Running, form, serving
from tests.serving.test_fuzzing import SHORT_CASES, check_described
from tests.serving.test_serve import JSON, LENGTH, b64, bomb, infer
from vitral.classifier.exported import described
from vitral.classifier.predicted_regions import PredictedRegions
from vitral.errors import VitralError
from vitral.events import ignore
from vitral.exporting.export_regions import write_regions_file
from vitral.images.geometry import Geometry
from vitral.serving.served import LONGEST, find_together, prepare_photo
from vitral.serving.server import serve
from vitral.serving.sources import NamedClassifier
from vitral.tasks.regions import FoundRegions
from vitral.tasks.semantic import Semantic

QUICKLY_EXPORTED = "digit-scenes-boxes"


def photo(index: int = 0, height: int = 96, width: int = 96, turn: int = 1) -> bytes:
    held, exif = io.BytesIO(), Image.Exif()
    exif[0x0112] = turn
    Image.fromarray(scene(index, height, width)).save(held, "PNG", exif=exif)
    return held.getvalue()


@cache
def loaded(folder: Path) -> vitral.Classifier:
    return vitral.load(folder, listener=ignore)


def found(home: Path, name: str, content: bytes) -> PredictedRegions:
    return loaded(home / name).find_regions(content, listener=ignore)[0]


def check_same(told: dict[str, Any], own: PredictedRegions) -> None:
    expected = own.to_json()
    for mine, theirs in zip(told.pop("regions"), expected.pop("regions"), strict=True):
        assert mine.pop("score") == pytest.approx(theirs.pop("score"), abs=1e-5)
        assert mine == theirs
    assert told == {**expected, "source": told["source"]}


@every_case("name", DRAWN)
@every_case(("height", "width", "turn"), [(96, 96, 1), (300, 420, 6), (60, 240, 1)], ids=lambda value: str(value))
def test_a_photo_is_answered_as_by_find_regions(
    regions_server: Running, regions_home: Path, name: str, height: int, width: int, turn: int
) -> None:
    content = photo(0, height, width, turn)
    reply = regions_server.post(f"/v1/predict?model={name}", content)
    assert reply.status == 200, reply.body
    (told,) = reply.json["predictions"]
    assert told["regions"], "nothing is found, so that nothing is compared"
    assert (told["height"], told["width"]) == ((width, height) if turn == 6 else (height, width))
    check_same(told, found(regions_home, name, content))


def test_one_map_of_classes_at_a_time_is_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    classifier, find = finding("digit-scenes-semantic"), Semantic.find
    maps: list[weakref.ref[np.ndarray]] = []

    def watched(self: Semantic, answers: object, views: Sequence[Geometry]) -> list[FoundRegions]:
        assert not any(made() is not None for made in maps[:-1])
        found = find(self, answers, views)
        maps.extend(weakref.ref(each.class_map) for each in found if each.class_map is not None)
        assert len(found) == 1
        return found

    photos = [prepare_photo(classifier, photo(index)) for index in range(4)]
    expected = classifier.find(torch.stack([each.input for each in photos]), [each.view for each in photos])
    monkeypatch.setattr(Semantic, "find", watched)
    for each, own in zip(find_together(classifier, photos), expected, strict=True):
        assert isinstance(each, FoundRegions)
        assert each.class_map is None
        assert each.scores == pytest.approx(own.scores, abs=1e-5)
    assert len(maps) == len(photos)


def test_a_threshold_shows_more_or_fewer(regions_server: Running, regions_home: Path) -> None:
    for name in ("digit-scenes", "digit-scenes-boxes"):
        own = found(regions_home, name, photo())
        lengths = []
        for threshold in ("?", "?threshold=0&", "?threshold=1&"):
            reply = regions_server.post(f"/v1/predict{threshold}model={name}", photo())
            lengths.append(len(reply.json["predictions"][0]["regions"]))
        assert lengths[0] == len(own)
        assert lengths[1] > lengths[0] > lengths[2] == 0


def test_what_regions_are_and_how_they_are_shown(regions_server: Running) -> None:
    about = {each["name"]: each for each in regions_server.get("/v1/models").json["models"]}
    assert about["plain"]["regions"] is None
    assert about["digit-scenes"]["regions"]["threshold"] == DRAWN["digit-scenes"][3]
    assert about["digit-scenes-panoptic"]["regions"]["threshold"] == 0.5  # where nothing else is known
    semantic = about["digit-scenes-semantic"]["regions"]
    assert (semantic["threshold"], semantic["ground"], len(set(semantic["colours"]))) == (None, [0], 11)
    (shares,) = regions_server.post("/v1/predict?model=digit-scenes-semantic", photo()).json["predictions"]
    assert sum(shares["shares"].values()) == pytest.approx(1, abs=1e-4)
    (counts,) = regions_server.post("/v1/predict?model=digit-scenes", photo()).json["predictions"]
    assert sum(counts["counts"].values()) == len(counts["regions"])
    assert regions_server.post("/v1/predict?model=plain", photo()).json["predictions"][0]["label"] in "abc"


def test_each_of_several_photos_has_its_own_answer(regions_server: Running, regions_home: Path) -> None:
    contents = [photo(index, 96 + 8 * index, 128) for index in range(5)]
    body, kind = form(*((f"{index}.png", each) for index, each in enumerate(contents)), ("no.txt", b"hello"))
    *told, bad = regions_server.post("/v1/predict?model=digit-scenes-boxes", body, kind).json["predictions"]
    assert bad["code"] == "not_an_image"
    assert [each["source"] for each in told] == [f"{index}.png" for index in range(5)]
    for each, content in zip(told, contents, strict=True):
        check_same(each, found(regions_home, "digit-scenes-boxes", content))


def test_clients_at_once_get_their_own_answers(regions_server: Running, regions_home: Path) -> None:
    jobs = [(name, photo(index)) for index in range(6) for name in DRAWN]
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda job: regions_server.post(f"/v1/predict?model={job[0]}", job[1]), jobs))
    for (name, content), reply in zip(jobs, replies, strict=True):
        check_same(reply.json["predictions"][0], found(regions_home, name, content))


def test_a_drawing_is_that_of_find_regions(regions_server: Running, regions_home: Path) -> None:
    content = photo(0, 200, 300)
    reply = regions_server.post("/v1/predict", content, Accept="image/png")
    assert reply.headers["content-type"] == "image/png"
    drawn = np.asarray(Image.open(io.BytesIO(reply.body)))
    assert np.array_equal(drawn, found(regions_home, "digit-scenes", content).overlay(scene(0, 200, 300)))
    assert regions_server.post("/v1/predict", content, Accept="image/jpeg").body[:2] == b"\xff\xd8"
    assert regions_server.post("/v1/predict", b"hello", Accept="image/png").status == 415
    assert regions_server.post("/v1/predict?model=plain", content, Accept="image/png").json["model"] == "plain"


def test_hugging_face_s_clients_of_both_tasks(
    regions_server: Running, regions_home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    file = tmp_path / "photo.png"
    file.write_bytes(photo())
    for name in DRAWN:
        address = f"http://127.0.0.1:{regions_server.port}/models/{name}"
        client = huggingface_hub.InferenceClient(model=address, token="any")
        own = found(regions_home, name, file.read_bytes())
        boxes = client.object_detection(str(file))
        corners = [[each.box.xmin, each.box.ymin, each.box.xmax, each.box.ymax] for each in boxes]
        assert np.allclose(corners, own.xyxy, atol=0.51)
        assert [each.label for each in boxes] == own.labels
        assert [each.score for each in boxes] == pytest.approx(own.confidence.tolist(), abs=1e-5)
        if own.mask is not None:
            subtask = {"digit-scenes": "instance"}.get(name, name.rpartition("-")[2])
            segments: list[Any] = client.image_segmentation(str(file), subtask=subtask)  # type: ignore[arg-type]
            assert all(
                np.array_equal(np.asarray(one.mask) > 0, mask) for one, mask in zip(segments, own.mask, strict=True)
            )
    fewer = huggingface_hub.InferenceClient(model=f"http://127.0.0.1:{regions_server.port}", token="any")
    assert fewer.object_detection(str(file), threshold=1.0) == []


def test_the_open_inference_protocol(regions_server: Running, regions_home: Path) -> None:
    path = "/v2/models/digit-scenes/infer"
    (output,) = regions_server.get("/v2/models/digit-scenes").json["outputs"]
    assert output == {"name": "regions", "datatype": "BYTES", "shape": [-1]}
    reply = regions_server.post(path, infer(b64(photo(0)), b64(photo(1)), outputs=[{"name": "regions"}]), JSON)
    (output,) = reply.json["outputs"]
    assert output["shape"] == [2]
    for text, index in zip(output["data"], (0, 1), strict=True):
        check_same(json.loads(text), found(regions_home, "digit-scenes", photo(index)))
    reply = regions_server.post(path, photo(), **{LENGTH: "0"})
    rest = reply.body[int(reply.headers[LENGTH.lower()]) :]
    assert int.from_bytes(rest[:4], "little") == len(rest) - 4
    check_same(json.loads(rest[4:]), found(regions_home, "digit-scenes", photo()))
    pixels = infer(*scene().tolist(), kind="UINT8", shape=[1, 96, 96, 3])
    (text,) = regions_server.post(path, pixels, JSON).json["outputs"][0]["data"]
    check_same(json.loads(text), found(regions_home, "digit-scenes", photo()))


RANKED = infer(b64(photo()), outputs=[{"name": "regions", "parameters": {"classification": 2}}])


@every_case(
    ("path", "body", "kind", "status", "code"),
    [
        ("/v1/predict?top=3", photo(), "image/png", 422, "not_possible"),
        ("/v1/predict?threshold=2", photo(), "image/png", 422, "invalid"),
        ("/v1/predict?threshold=nan", photo(), "image/png", 422, "invalid"),
        ("/v1/predict?threshold=0.5&model=digit-scenes-semantic", photo(), "image/png", 422, "not_possible"),
        ("/v1/predict?threshold=0.5&model=plain", photo(), "image/png", 422, "not_possible"),
        ("/v1/predict", photo(0, 4, 4 * LONGEST + 4), "image/png", 413, "too_long"),
        ("/v1/predict", bomb(), "image/png", 413, "too_many_pixels"),
        ("/v1/predict", photo()[:300], "image/png", 422, "unreadable_image"),
        ("/v1/explain", photo(), "image/png", 422, "not_possible"),
        ("/predictions/digit-scenes", photo(), "image/png", 422, "not_possible"),
        ("/", json.dumps({"inputs": b64(photo()), "parameters": {"top_k": 2}}).encode(), JSON, 422, "not_possible"),
        (
            "/",
            json.dumps({"inputs": b64(photo()), "parameters": {"subtask": "semantic"}}).encode(),
            JSON,
            422,
            "not_possible",
        ),
        ("/v2/models/digit-scenes/infer", RANKED, JSON, 400, "malformed"),
        (
            "/v2/models/digit-scenes/infer",
            infer(b64(photo()), outputs=[{"name": "probabilities"}]),
            JSON,
            400,
            "malformed",
        ),
        (
            "/v2/models/digit-scenes/infer",
            infer(*[0.5] * 3072, kind="FP32", shape=[1, 3, 32, 32]),
            JSON,
            400,
            "malformed",
        ),
    ],
)
def test_what_is_not_possible_is_one_line(
    regions_server: Running, path: str, body: bytes, kind: str, status: int, code: str
) -> None:
    reply = regions_server.post(path, body, kind)
    assert (reply.status, reply.json["code"]) == (status, code), reply.body
    assert "\n" not in reply.json["error"]


def test_the_longest_photo_is_answered(regions_server: Running, regions_home: Path) -> None:
    content = photo(0, 8, 8 * LONGEST)
    reply = regions_server.post("/v1/predict?model=digit-scenes-semantic", content)
    check_same(reply.json["predictions"][0], found(regions_home, "digit-scenes-semantic", content))


def test_features_are_the_library_s(regions_server: Running, regions_home: Path) -> None:
    classifier = loaded(regions_home / "digit-scenes")
    (row,) = regions_server.post("/v1/features", photo()).json["features"]
    expected = classifier.predictor.features(classifier.preprocessing(scene())[None])
    assert row["features"] == pytest.approx(expected[0].tolist(), abs=1e-5)


def test_images_and_batches_are_counted(regions_server: Running) -> None:
    before = regions_server.figures()["vitral_images_total"]
    regions_server.post("/v1/predict", photo())
    assert regions_server.figures()["vitral_images_total"] == before + 1
    late = regions_server.post("/v1/predict", photo(), **{"X-Request-Timeout-Ms": "0"})
    assert (late.status, late.json["code"]) == (504, "deadline")


@pytest.mark.long
def test_requests_made_from_the_description_get_described_answers(regions_server: Running) -> None:
    check_described(regions_server, SHORT_CASES)


@pytest.mark.long
def test_alone_they_have_the_bits_of_find_regions(regions_home: Path) -> None:
    with serving(regions_home, *DRAWN, "--deterministic", "--token", "a-secret") as running:
        assert running.post("/v1/predict", photo()).status == 401
        for name in DRAWN:
            reply = running.post(f"/v1/predict?model={name}", photo(), Authorization="Bearer a-secret")
            (told,) = reply.json["predictions"]
            assert told == {**found(regions_home, name, photo()).to_json(), "source": "image"}


def test_photos_are_collected_by_classes_of_whole_photos_alone(regions_home: Path, tmp_path: Path) -> None:
    with pytest.raises(VitralError, match="one class"):
        serve(
            [NamedClassifier(str(regions_home / "digit-scenes"))],
            port=0,
            collect=tmp_path / "collected",
            listener=ignore,
        )
    assert not (tmp_path / "collected").exists()


def check_alike(told: dict[str, Any], own: PredictedRegions) -> None:
    """Hold what a file finds in another runtime against what the classifier finds, up to rounding."""
    expected = own.to_json()
    assert (told["height"], told["width"]) == own.size
    assert [each["label"] for each in told["regions"]] == own.labels
    for mine, theirs in zip(told["regions"], expected["regions"], strict=True):
        assert mine["score"] == pytest.approx(theirs["score"], abs=1e-3)
        assert mine["area"] == pytest.approx(theirs["area"], rel=0.01, abs=2)
        if own.counted:
            assert mine["bbox"] == pytest.approx(theirs["bbox"], abs=1)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == QUICKLY_EXPORTED else [pytest.mark.long]) for name in DRAWN]
)
def test_an_exported_file_answers_as_the_classifier(
    regions_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    write_regions_file(finding(name), described(finding(name)), tmp_path / "model.onnx")
    file = tmp_path / "photo.png"
    with serving(tmp_path, f"{name}=model.onnx", *UNHURRIED, engine="auto") as running:
        (about,) = running.get("/v1/models").json["models"]
        assert about["name"] == name
        for size in ((96, 96, 1), (300, 420, 6), (60, 240, 1)):
            file.write_bytes(photo(0, *size))
            own = found(regions_home, name, file.read_bytes())
            assert own.labels, "nothing is found, so that nothing is compared"
            reply = running.post("/v1/predict", file.read_bytes())
            assert reply.status == 200, reply.body
            check_alike(reply.json["predictions"][0], own)
        client = huggingface_hub.InferenceClient(model=f"http://127.0.0.1:{running.port}/models/{name}", token="any")
        boxes = client.object_detection(str(file))
        assert [each.label for each in boxes] == own.labels
        if own.counted:
            corners = [[each.box.xmin, each.box.ymin, each.box.xmax, each.box.ymax] for each in boxes]
            assert np.allclose(corners, own.xyxy, atol=1.01)
        if own.mask is not None:
            segments: list[Any] = client.image_segmentation(str(file))
            for one, mask in zip(segments, own.mask, strict=True):
                assert ((np.asarray(one.mask) > 0) == mask).mean() > 0.999
        refused = running.post("/v1/features", photo())
        assert (refused.status, refused.json["code"]) == (422, "not_possible"), refused.body
