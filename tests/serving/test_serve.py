"""`vitral serve` over a socket: its answers are those of `predict`, and what is wrong has a status and one line of JSON."""

import base64
import io
import json
import re
import signal
import socket
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
import torch
from PIL import Image

import vitral
from tests.cases import every_case
from tests.forks import type_command
from tests.serving.conftest import Running, encoded, form, noise, serving
from vitral.classifier.folder import save
from vitral.cli.main import app
from vitral.events import ignore
from vitral.serving.limits import LARGEST_BODY

TOKEN = "a-secret"
LENGTH = "Inference-Header-Content-Length"


def offline(home: Path, content: bytes, name: str = "noise") -> dict[str, float]:
    (found,) = vitral.load(home / name, listener=ignore).predict(content, top=3)
    return dict(found.top)


def b64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def infer(*data: Any, kind: str = "BYTES", shape: list[int] | None = None, **others: Any) -> bytes:  # noqa: ANN401
    tensor = {"name": "image", "shape": shape or [len(data)], "datatype": kind, "data": list(data)}
    return json.dumps({"inputs": [tensor], **others}).encode()


@pytest.fixture(scope="module")
def guarded(served_home: Path) -> Iterator[Running]:
    """A server that wants a token, takes little, and computes every image alone."""
    with serving(served_home, "noise", "--token", TOKEN, "--max-bytes", "50000", "--deterministic") as running:
        yield running


def test_a_photo_is_answered_as_by_predict(server: Running, served_home: Path) -> None:
    (expected,) = vitral.load(served_home / "noise", listener=ignore).predict(encoded(7), top=2)
    reply = server.post("/v1/predict?top=2", encoded(7))
    assert reply.status == 200, reply.body
    assert (reply.json["model"], len(reply.json["version"])) == ("noise", 12)
    (found,) = reply.json["predictions"]
    assert [row["label"] for row in found["top"]] == [label for label, _ in expected.top]
    assert [row["probability"] for row in found["top"]] == pytest.approx([each for _, each in expected.top], abs=1e-6)
    assert found["novelty"] == pytest.approx(expected.novelty, rel=1e-4)
    assert found["abstain"] is (expected.sure is False or expected.known is False)
    assert "abstain" not in server.post("/v1/predict?model=plain", encoded(7)).json["predictions"][0]


def test_each_of_several_images_has_an_answer_or_an_error(server: Running, served_home: Path) -> None:
    body, kind = form(("good.jpg", encoded(1)), ("text.jpg", b"hello"), ("cut.png", encoded(2, "PNG")[:900]))
    reply = server.post("/v1/predict", body, kind)
    good, text, cut = reply.json["predictions"]
    assert reply.status == 200
    assert (good["source"], good["probability"]) == (
        "good.jpg",
        pytest.approx(max(offline(served_home, encoded(1)).values())),
    )
    assert [(each["source"], each["code"]) for each in (text, cut)] == [
        ("text.jpg", "not_an_image"),
        ("cut.png", "unreadable_image"),
    ]
    listed = {"images": [b64(encoded(1)), {"name": "two", "data": b64(encoded(2))}]}
    one, two = server.post("/v1/predict", json.dumps(listed).encode(), "application/json").json["predictions"]
    assert (one["top"], two["source"]) == (good["top"], "two")


def test_features_and_explanations_are_the_library_s(server: Running, served_home: Path) -> None:
    classifier = vitral.load(served_home / "noise", listener=ignore)
    (row,) = server.post("/v1/features", encoded(3)).json["features"]
    expected = classifier.predictor.features(
        classifier.preprocessing(np.array(Image.open(io.BytesIO(encoded(3)))))[None]
    )
    assert row["features"] == pytest.approx(expected[0].tolist(), abs=1e-5)
    told = server.post("/v1/explain?label=b", encoded(3)).json
    found = vitral.explain(classifier, encoded(3), label="b")
    assert (told["label"], told["method"]) == ("b", found.method)
    assert np.allclose(told["relevance"], found.relevance, atol=1e-5)
    drawn = server.post("/v1/explain", encoded(3), Accept="image/png")
    assert Image.open(io.BytesIO(drawn.body)).format == "PNG"
    assert server.post("/v1/explain?label=bb", encoded(3)).status == 422


def test_hugging_face_s_client_works_unchanged(
    server: Running, served_home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    photo = tmp_path / "photo.jpg"
    photo.write_bytes(encoded(4))
    for address, name in (("", "noise"), ("/models/plain", "plain")):
        client = huggingface_hub.InferenceClient(model=f"http://127.0.0.1:{server.port}{address}", token="any")
        found = {each.label: each.score for each in client.image_classification(str(photo), top_k=2)}
        expected = sorted(offline(served_home, encoded(4), name).items(), key=lambda each: -each[1])[:2]
        assert found == pytest.approx(dict(expected))
    with pytest.raises(Exception, match="not a readable image"):
        client.image_classification(b"hello")


def test_the_open_inference_protocol(server: Running, served_home: Path) -> None:
    expected = [list(dict(sorted(offline(served_home, encoded(seed)).items())).values()) for seed in (5, 6)]
    reply = server.post(
        "/v2/models/noise/infer", infer(b64(encoded(5)), b64(encoded(6)), id="mine"), "application/json"
    )
    (output,) = reply.json["outputs"]
    assert (reply.json["id"], output["shape"], output["datatype"]) == ("mine", [2, 3], "FP32")
    assert output["data"] == pytest.approx([*expected[0], *expected[1]], abs=1e-6)
    ranked = infer(b64(encoded(5)), outputs=[{"name": "probabilities", "parameters": {"classification": 1}}])
    (text,) = server.post("/v2/models/noise/infer", ranked, "application/json").json["outputs"][0]["data"]
    value, index, label = text.split(":")
    assert float(value) == pytest.approx(max(expected[0]), abs=1e-6)
    assert "abc"[int(index)] == label
    for about, rest in binary_requests(encoded(5)):
        reply = server.post("/v2/models/noise/infer", about + rest, **{LENGTH: str(len(about))})
        length = int(reply.headers[LENGTH.lower()])
        assert np.frombuffer(reply.body[length:], "<f4").tolist() == pytest.approx(expected[0], abs=1e-6)
        assert json.loads(reply.body[:length])["outputs"][0]["parameters"]["binary_data_size"] == 12
    pixels = noise(5)
    reply = server.post(
        "/v2/models/plain/infer", infer(*pixels.tolist(), kind="UINT8", shape=[1, *pixels.shape]), "application/json"
    )
    (found,) = vitral.load(served_home / "plain", listener=ignore).predict(pixels)
    assert max(reply.json["outputs"][0]["data"]) == pytest.approx(found.probability, abs=1e-6)
    metadata = server.get("/v2/models/noise").json
    assert (metadata["outputs"][0]["shape"], server.get("/v2").json["name"]) == ([-1, 3], "vitral")
    for probe in (
        "/v2/health/live",
        "/v2/health/ready",
        "/v2/models/noise/ready",
        f"/v2/models/noise/versions/{metadata['versions'][0]}/ready",
    ):
        assert server.get(probe).status == 200


def binary_requests(image: bytes) -> list[tuple[bytes, bytes]]:
    """The three ways to send an image as bytes: alone, as an element with its length, and as the whole rest."""
    tensor = {"name": "image", "shape": [1], "datatype": "BYTES"}
    given = {"inputs": [tensor], "parameters": {"binary_data_output": True}}
    return [
        (b"", image),
        (json.dumps(given).encode(), len(image).to_bytes(4, "little") + image),
        (json.dumps(given).encode(), image),
    ]


def test_torchserve_s_form(server: Running, served_home: Path) -> None:
    for method in ("PUT", "POST"):
        reply = server.request(method, "/predictions/noise", encoded(8))
        assert reply.json == pytest.approx(offline(served_home, encoded(8)), abs=1e-6)


def bomb() -> bytes:
    """A PNG of 60,000 pixels a side in a few bytes: its header says so, and nothing follows."""
    held = bytearray(encoded(0, "PNG"))
    held[16:24] = (60_000).to_bytes(4, "big") * 2
    held[29:33] = zlib.crc32(held[12:29]).to_bytes(4, "big")
    return bytes(held)


JSON = "application/json"


@every_case(
    ("path", "body", "kind", "status", "code"),
    [
        ("/v1/predict", b"", "image/jpeg", 400, "malformed"),
        ("/v1/predict", b"hello", "image/jpeg", 415, "not_an_image"),
        ("/v1/predict", encoded(1)[:400], "image/jpeg", 422, "unreadable_image"),
        ("/v1/predict", b"<svg xmlns='http://www.w3.org/2000/svg'/>", "image/svg+xml", 415, "not_an_image"),
        ("/v1/predict?top=0", encoded(1), "image/jpeg", 422, "invalid"),
        ("/v1/predict?top=x", encoded(1), "image/jpeg", 422, "invalid"),
        ("/v1/predict?model=nois", encoded(1), "image/jpeg", 404, "no_such_model"),
        ("/v1/predict", b"{", JSON, 400, "malformed"),
        ("/v1/predict", b'{"images": []}', JSON, 400, "malformed"),
        ("/v1/predict", b'{"images": ["?"]}', JSON, 400, "malformed"),
        ("/v1/predict", b'{"images": [3]}', JSON, 400, "malformed"),
        ("/v1/predict", b"[" * 5000, JSON, 400, "malformed"),
        ("/v1/predict", b"\xff\xfe", JSON, 400, "malformed"),
        ("/v1/predict", b"--no\r\n", "multipart/form-data; boundary=edge", 400, "malformed"),
        ("/v1/predict", b"--no\r\n", "multipart/form-data", 400, "malformed"),
        ("/v1/predict", form()[0], form()[1], 400, "malformed"),
        ("/v1/explain?method=x", encoded(1), "image/jpeg", 422, "invalid"),
        ("/v1/explain?layer=99", encoded(1), "image/jpeg", 422, "not_possible"),
        ("/", b'{"inputs": "?"}', JSON, 400, "malformed"),
        (
            "/",
            json.dumps({"inputs": b64(encoded(1)), "parameters": {"function_to_apply": "none"}}).encode(),
            JSON,
            422,
            "not_possible",
        ),
        ("/models/nix", encoded(1), "image/jpeg", 404, "no_such_model"),
        ("/predictions/nix", encoded(1), "image/jpeg", 404, "no_such_model"),
        ("/v2/models/noise/versions/1/infer", infer(b64(encoded(1))), JSON, 404, "no_such_version"),
        ("/v2/models/noise/infer", b"{}", JSON, 400, "malformed"),
        ("/v2/models/noise/infer", infer(b64(encoded(1)), shape=[2]), JSON, 400, "malformed"),
        ("/v2/models/noise/infer", infer("x", shape=[-1]), JSON, 400, "malformed"),
        ("/v2/models/noise/infer", infer("?"), JSON, 400, "malformed"),
        ("/v2/models/noise/infer", infer("aGVsbG8="), JSON, 415, "not_an_image"),
        ("/v2/models/noise/infer", infer(1, 2, kind="FP32", shape=[1, 3, 16, 16]), JSON, 400, "malformed"),
        *(
            ("/v2/models/noise/infer", infer(*values, kind="UINT8", shape=[1, 1, 1, 3]), JSON, 400, "malformed")
            for values in (
                (300,),
                (300, 0, 0),
                (-1, 0, 0),
                (0.7, 0.2, 0),
                ("7", "7", "7"),
                (True, True, True),
                (None,) * 3,
            )
        ),
        *(
            ("/v2/models/noise/infer", infer(*[each] * 768, kind="FP32", shape=[1, 3, 16, 16]), JSON, 400, "malformed")
            for each in (float("nan"), float("inf"), 1e30, "0.5", None)
        ),
        ("/nix", encoded(1), "image/jpeg", 404, "no_such_route"),
        ("/healthz", b"x", "text/plain", 405, "method"),
    ],
)
def test_what_is_wrong_has_a_status_and_a_line(
    server: Running, path: str, body: bytes, kind: str, status: int, code: str
) -> None:
    reply = server.post(path, body, kind)
    assert (reply.status, reply.json["code"]) == (status, code), reply.body
    assert "\n" not in reply.json["error"]
    assert not [word for word in ("Traceback", "/tmp", "vitral/") if word in reply.body.decode()]
    assert server.post("/v1/predict", encoded(1)).status == 200


@every_case("written", [base64.encodebytes, base64.urlsafe_b64encode, lambda each: base64.b64encode(each).rstrip(b"=")])
def test_base64_as_programs_write_it(server: Running, served_home: Path, written: Callable[[bytes], bytes]) -> None:
    image = (
        encoded(1) + b"\xfb\xef\xbe" + bytes(1)
    )  # after its end: what differs between the two alphabets, and padding
    text = written(image).decode()
    (found,) = server.post("/v1/predict?top=3", b"\xef\xbb\xbf" + json.dumps({"images": [text]}).encode(), JSON).json[
        "predictions"
    ]
    right = pytest.approx(offline(served_home, image), abs=1e-6)
    assert {row["label"]: row["probability"] for row in found["top"]} == right
    scores = server.post("/?top=3", json.dumps({"inputs": text}).encode(), JSON).json
    assert {row["label"]: row["score"] for row in scores} == right


@every_case(
    ("body", "kind", "said"),
    [
        (json.dumps({"images": ["https://example.com/cat.jpg"]}).encode(), JSON, "images.0: what .* is not base64"),
        (encoded(1).translate(None, b"\r\n\0"), "application/x-www-form-urlencoded", "--data-binary"),
        (json.dumps({"images": []}).encode(), "application/x-www-form-urlencoded", "Content-Type: application/json"),
    ],
)
def test_what_a_client_meant_is_said(server: Running, body: bytes, kind: str, said: str) -> None:
    reply = server.post("/v1/predict", body, kind)
    assert reply.status == 400
    assert re.search(said, reply.json["error"]), reply.body


def test_too_many_pixels_and_bytes_are_refused_before_they_cost_anything(server: Running) -> None:
    assert server.post("/v1/predict", bomb()).status == 413
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(
            f"POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Length: {LARGEST_BODY + 1}\r\n\r\n".encode()
        )
        assert connection.recv(12) == b"HTTP/1.1 413"  # before a byte of the body was sent
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(b"NONSENSE\r\n\r\n")
        answer = b"".join(iter(lambda: connection.recv(4096), b""))  # to its end: it may come in pieces
    assert answer.startswith(b"HTTP/1.1 400")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["code"] == "malformed"
    gzipped = server.post("/v1/predict", b"\x1f\x8b", **{"Content-Encoding": "gzip"})
    assert (gzipped.status, gzipped.json["code"]) == (415, "compressed")


def test_a_deadline_of_the_client_s_own(server: Running) -> None:
    own = "X-Request-Timeout-Ms"
    assert server.post("/v1/predict", encoded(1), **{own: "20000"}).status == 200
    assert server.post("/v1/predict", encoded(1), **{own: "0"}).status == 504
    assert server.post("/v1/predict", encoded(1), **{own: "soon"}).status == 400


def test_requests_are_named_logged_and_counted(server: Running) -> None:
    reply = server.post("/v1/predict", encoded(1), **{"X-Request-ID": "abc-1"})
    assert reply.headers["x-request-id"] == "abc-1"
    server.post("/v1/predict", b"hello", **{"X-Request-ID": "a\x1b[31m"})
    line = next(line for line in server.log() if line["id"] == "abc-1")
    assert (line["status"], line["model"], line["images"]) == (200, "noise", 1)
    assert not any("\x1b" in line["id"] for line in server.log())
    lines = server.get("/metrics").body.decode().splitlines()
    figures = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert float(figures['vitral_requests_total{code="200",route="/v1/predict"}']) >= 1
    assert float(figures['vitral_errors_total{reason="not_an_image"}']) >= 1
    assert float(figures["vitral_images_total"]) >= float(figures["vitral_batches_total"]) > 0
    assert any(name.startswith('vitral_model_info{name="noise"') for name in figures)
    assert (float(figures["vitral_queue_depth"]), float(figures["vitral_ready"])) == (0, 1)


def test_the_description_of_the_routes_has_every_form(server: Running, guarded: Running) -> None:
    described = server.get("/openapi.json").json
    assert {
        "/v1/predict",
        "/v1/features",
        "/v1/explain",
        "/v1/models",
        "/",
        "/predictions/{name}",
        "/v2/models/{name}/infer",
        "/metrics",
    } <= described["paths"].keys()
    assert "example" in str(described["paths"]["/v1/predict"])
    assert "security" not in described
    names = set(re.findall(r'"\$ref": "#/components/schemas/(\w+)"', json.dumps(described)))
    assert {"JsonImages", "InferenceRequest", "TaskInput"} <= names <= described["components"]["schemas"].keys()
    assert guarded.get("/openapi.json", Authorization=f"Bearer {TOKEN}").json["security"]


@every_case("path", ["/metrics", "/v1/models", "/v2/health/live", "/openapi.json", "/docs", "/nowhere"])
def test_a_token_is_wanted_everywhere_but_for_a_sign_of_life(guarded: Running, path: str) -> None:
    assert guarded.get("/healthz").status == guarded.get("/readyz").status == 200
    for given in (
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": "Bearer"},
    ):
        reply = guarded.get(path, **given)
        assert (reply.status, reply.json["code"], reply.headers["www-authenticate"]) == (401, "token", "Bearer")
    assert guarded.get(path, Authorization=f"Bearer {TOKEN}").status == (404 if path in ("/docs", "/nowhere") else 200)
    assert guarded.post("/v1/predict", bytes(50_001)).status == 413  # which is told first, by the header alone
    with socket.create_connection(("127.0.0.1", guarded.port), timeout=10) as connection:
        connection.sendall(b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\n")
        assert connection.recv(12) == b"HTTP/1.1 401"  # before a byte of the body was sent


def test_in_any_company_an_image_has_the_bits_of_predict(guarded: Running, server: Running, served_home: Path) -> None:
    expected = [offline(served_home, encoded(seed)) for seed in range(40)]

    def ask(number: int) -> None:
        alike = guarded.post("/v1/predict", encoded(number % 40), Authorization=f"Bearer {TOKEN}")
        assert {row["label"]: row["probability"] for row in alike.json["predictions"][0]["top"]} == expected[
            number % 40
        ]
        near = server.post("/v1/predict", encoded(number % 40))
        assert {row["label"]: row["probability"] for row in near.json["predictions"][0]["top"]} == pytest.approx(
            expected[number % 40], abs=1e-5
        )

    with ThreadPoolExecutor(12) as clients:
        list(clients.map(ask, range(120)))


def test_a_token_is_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VITRAL_TOKEN", TOKEN)
    _, given, _ = app.parse_args(["serve"], exit_on_error=False, print_error=False)
    assert given.arguments["token"] == TOKEN


@pytest.mark.skipif(not hasattr(signal, "SIGTERM") or not hasattr(socket, "AF_UNIX"), reason="signals of POSIX")
def test_a_termination_loses_no_request_and_a_new_version_takes_over(served_home: Path, tmp_path: Path) -> None:
    made = vitral.load(served_home / "plain", listener=ignore)
    save(made, tmp_path / "mine")
    with serving(tmp_path, "mine") as running:
        first = running.get("/v1/models").json["models"][0]["version"]
        with torch.no_grad():
            made.model.head.weight.mul_(-1)
        save(made, tmp_path / "mine")
        seen = until_changed(running, first)
        assert seen[-1] != first
        (tmp_path / "mine" / "weights.safetensors").write_bytes(b"damaged")
        time.sleep(3.5)
        assert running.post("/v1/predict", encoded(1)).json["version"] == seen[-1]
        assert any("stays" in line.get("reload", "") for line in running.log())
        with ThreadPoolExecutor(8) as clients:
            asked = [clients.submit(ask_until_refused, running, number) for number in range(8)]
            time.sleep(0.3)
            running.process.send_signal(signal.SIGTERM)
            time.sleep(0.2)
            assert running.get("/readyz").status == 503
            answered = {name for one in asked for name in one.result()}
        done = running.process.ended(30)
    assert done.returncode == 0, done.stderr
    taken = {name for line in done.stderr.splitlines() if (name := named(line)).startswith("drain-")}
    assert len(taken) > 8
    assert taken == answered  # what came too late was never begun


def named(line: str) -> str:
    """Return the name of the request of a line of the log; empty for another line."""
    return str(json.loads(line).get("id", "")) if line.startswith("{") else ""


def until_changed(running: Running, version: str) -> list[str]:
    """Ask until another version answers; every request has an answer."""
    versions = [version]
    for _ in range(200):
        reply = running.post("/v1/predict", encoded(1))
        assert reply.status == 200
        versions.append(reply.json["version"])
        if versions[-1] != version:
            break
        time.sleep(0.05)
    return versions


def ask_until_refused(running: Running, client: int) -> list[str]:
    """Ask until no connection is taken any more; return the names of the requests that were answered."""
    answered: list[str] = []
    while True:
        name = f"drain-{client}-{len(answered)}"
        try:
            reply = running.post("/v1/predict", encoded(client), **{"X-Request-ID": name})
        except ConnectionError:
            return answered
        assert reply.status == 200
        answered.append(name)


@every_case(
    ("words", "part"),
    [
        (("plain", "--host", "0.0.0.0"), "--token"),
        (("plain", "--token", "ünsafe"), "token"),
        (("nowhere",), "nowhere"),
        (("plain", "./plain"), "plain"),
        (("plain", "--port", "99999"), "--port"),
        (("plain", "--deadline", "soon"), "soon"),
    ],
)
def test_what_cannot_be_served_is_said_in_one_line(served_home: Path, words: tuple[str, ...], part: str) -> None:
    done = type_command(served_home, "serve", *words)
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    assert part in done.stderr.splitlines()[-1]


def test_a_port_that_is_taken_is_said(served_home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = type_command(served_home, "serve", "plain", "--port", port)
    assert done.returncode == 1
    assert port in done.stderr.splitlines()[-1]
