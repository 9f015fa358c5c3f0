"""Clients of other servers work with ours unchanged: Triton's, the probes of KServe, curl as for TorchServe."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tritonclient import http as triton

import vitral
from tests.serving.conftest import Running, encoded, noise
from vitral.events import ignore

CLASSES = ("a", "b", "c")
SEED = 5


@pytest.fixture
def client(server: Running) -> Iterator[triton.InferenceServerClient]:
    made = triton.InferenceServerClient(f"127.0.0.1:{server.port}")
    yield made
    made.close()


@pytest.fixture(scope="module")
def offline(served_home: Path) -> vitral.Classifier:
    return vitral.load(served_home / "plain", listener=ignore)


def probabilities(classifier: vitral.Classifier, image: bytes | np.ndarray) -> np.ndarray:
    (found,) = classifier.predict(image, top=len(CLASSES))
    by_class = dict(found.top)
    return np.array([by_class[name] for name in CLASSES])


def tensor(values: np.ndarray, kind: str, *, binary: bool = True) -> triton.InferInput:
    made = triton.InferInput("image", list(values.shape), kind)
    made.set_data_from_numpy(values, binary_data=binary)
    return made


def test_triton_s_client_finds_the_server_and_its_models(client: triton.InferenceServerClient) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("plain")
    assert not client.is_model_ready("nowhere")
    assert set(client.get_server_metadata()["extensions"]) == {"binary_tensor_data", "classification"}
    about = client.get_model_metadata("plain")
    assert [each["datatype"] for each in about["inputs"] + about["outputs"]] == ["BYTES", "FP32"]
    assert client.is_model_ready("plain", about["versions"][0])


def test_triton_s_client_gets_the_answers_of_predict(
    client: triton.InferenceServerClient, offline: vitral.Classifier
) -> None:
    image, pixels = encoded(SEED), noise(SEED)
    prepared = offline.preprocessing(pixels)[None].numpy()
    for values, kind, expected in (
        (np.array([image], dtype=object), "BYTES", image),
        (pixels[None], "UINT8", pixels),
        (prepared, "FP32", pixels),
    ):
        for wanted in (None, [triton.InferRequestedOutput("probabilities", binary_data=False)]):
            answer = client.infer("plain", [tensor(values, kind)], outputs=wanted, request_id="mine")
            assert answer.get_response()["id"] == "mine"
            found = answer.as_numpy("probabilities")
            assert found.shape == (1, len(CLASSES))
            assert found[0] == pytest.approx(probabilities(offline, expected), abs=1e-4)


def test_triton_s_classification_names_the_best_classes(
    client: triton.InferenceServerClient, offline: vitral.Classifier
) -> None:
    images = [encoded(seed) for seed in (SEED, SEED + 1)]
    for binary in (True, False):
        wanted = triton.InferRequestedOutput("probabilities", binary_data=binary, class_count=2)
        answer = client.infer("plain", [tensor(np.array(images, dtype=object), "BYTES")], outputs=[wanted])
        for row, image in zip(answer.as_numpy("probabilities"), images, strict=True):
            expected = probabilities(offline, image)
            best = np.argsort(-expected)[:2]
            texts = [each.decode() if isinstance(each, bytes) else each for each in row]
            value, index, label = texts[0].split(":")
            assert [int(text.split(":")[1]) for text in texts] == best.tolist()
            assert float(value) == pytest.approx(expected[int(index)], abs=1e-4)
            assert label == CLASSES[int(index)]


def test_triton_s_client_hears_why_there_is_no_answer(client: triton.InferenceServerClient) -> None:
    with pytest.raises(triton.InferenceServerException) as refusal:
        client.infer("plain", [tensor(np.array([b"hello"], dtype=object), "BYTES")])
    assert refusal.value.message()
    assert client.is_server_ready()


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_sends_a_file_as_to_torchserve(server: Running, offline: vitral.Classifier, tmp_path: Path) -> None:
    for side in (40, 900):  # the larger one waits for leave to come (Expect: 100-continue)
        (tmp_path / "photo.bmp").write_bytes(encoded(SEED, "BMP", side))
        address = f"http://127.0.0.1:{server.port}/predictions/plain"
        done = subprocess.run(["curl", "-sS", "-T", tmp_path / "photo.bmp", address], capture_output=True, check=True)
        found = json.loads(done.stdout)
        expected = probabilities(offline, encoded(SEED, "BMP", side))
        assert [found[name] for name in CLASSES] == pytest.approx(expected, abs=1e-4)
