"""The page of `vitral serve` in a real Chromium, and the owner's page: photos in, answers and maps out, photos named."""

import csv
import io
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import vitral
from tests.chromium import BROWSER, Chromium
from tests.forks import type_command
from tests.serving.conftest import Running, encoded, serving
from vitral.checks.corrections import COLUMNS, table_rows
from vitral.data.open import open_data
from vitral.events import ignore
from vitral.serving.page import PATHS

TOKEN = "a-secret"
HEIC = Path(__file__).parents[1] / "images" / "turned.heic"
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
LINES = "[...document.querySelectorAll('.answer-line')].map((line) => line.textContent)"


def answered(browser: Chromium, count: int) -> list[str]:
    """Return the first lines of as many cards, once all have their answers, the newest first."""
    browser.wait(f"{LINES}.filter((line) => !line.endsWith('…')).length === {count}")
    lines: list[str] = browser.run(LINES)
    return lines


def select(browser: Chromium, selector: str, value: str) -> None:
    """Choose in a list."""
    browser.run(
        f"(() => {{ const it = document.querySelector('{selector}'); it.value = '{value}';"
        "it.dispatchEvent(new Event('change')); })()"
    )


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with Chromium(tmp_path_factory.mktemp("profile")) as running:
        yield running


@pytest.fixture(scope="module")
def collecting(served_home: Path) -> Iterator[Running]:
    """A server that wants a token and collects photos."""
    with serving(served_home, "noise", "--token", TOKEN, "--collect", "collected") as running:
        yield running


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    path = tmp_path / "a photo's.jpg"
    path.write_bytes(encoded(7))
    return path


def test_the_pages_are_open_and_load_nothing_but_themselves(collecting: Running) -> None:
    for path in PATHS:
        reply = collecting.get(path)
        policy, text = reply.headers["content-security-policy"], reply.body.decode()
        assert (reply.status, "set-cookie" in reply.headers) == (200, False)
        assert policy.startswith("default-src 'none'")
        assert "unsafe" not in policy
        assert not re.search(r"<script(?! src=)|<style|\son\w+=|\sstyle=", text) or reply.headers[
            "content-type"
        ].startswith("text/javascript")
        assert not re.search(r"(?:src|href)=\"(?:https?:)?//|url\(|@import", text)
        assert "noise" not in text  # the classifier's name is behind the token
        head = collecting.request("HEAD", path)  # by which monitors ask whether a server lives
        assert (head.status, head.body) == (200, b"")
    for method, path in (("POST", "/"), ("GET", "/v1/models"), ("GET", "/v1/review"), ("GET", "/page/other")):
        assert collecting.request(method, path).status == 401


@needs_browser
def test_a_photo_has_its_answer(server: Running, served_home: Path, browser: Chromium, photo: Path) -> None:
    browser.open(f"http://127.0.0.1:{server.port}/")
    browser.choose("#file", [photo])
    (line,) = answered(browser, 1)
    (own,) = vitral.load(served_home / "noise", listener=ignore).predict(photo)
    assert line.split() == [own.label, f"{own.probability:.1%}"]
    assert browser.run("document.querySelector('.doubt').hidden") is not (own.sure is False or own.known is False)


@needs_browser
@pytest.mark.long
def test_maps_by_class_layer_and_head(server: Running, browser: Chromium, photo: Path) -> None:
    browser.open(f"http://127.0.0.1:{server.port}/")
    browser.give("drop", [photo])
    answered(browser, 1)
    browser.wait("!document.querySelector('.look').hidden")
    browser.run("document.querySelector('.look button').focus()")
    browser.press("Enter")
    browser.wait("!document.querySelector('canvas').hidden")
    assert browser.run("document.querySelectorAll('.shown option').length") == 3 + 2  # classes and layers

    def chosen(name: str, value: str, said: str) -> None:
        select(browser, name, value)
        browser.wait(f"document.querySelector('.what').textContent.includes('{said}')")

    pixels = "document.querySelector('canvas').toDataURL()"
    maps = [browser.run(pixels)]
    label = browser.run("document.querySelector('.shown').options[1].value")
    chosen(".shown", label, f"for {label.removeprefix('label:')}")
    maps.append(browser.run(pixels))
    chosen(".shown", "layer:1", "layer 1 of 2, mean of 2 heads")
    maps.append(browser.run(pixels))
    chosen(".head", "2", "layer 1 of 2, head 2 of 2")
    maps.append(browser.run(pixels))
    assert len(set(maps)) == 4
    browser.run("document.querySelector('.strength').focus()")
    before = float(browser.run("document.querySelector('canvas').style.opacity"))
    browser.press("ArrowLeft")
    assert float(browser.run("document.querySelector('canvas').style.opacity")) == pytest.approx(before - 0.01)


@needs_browser
@pytest.mark.long
def test_the_lines_for_programs_do_the_same(server: Running, browser: Chromium, photo: Path) -> None:
    browser.open(f"http://127.0.0.1:{server.port}/")
    select(browser, "#classifier", "plain")
    browser.choose("#file", [photo])
    (line,) = answered(browser, 1)
    curl, python = browser.run("[...document.querySelectorAll('.result pre')].map((it) => it.textContent)")
    for command in (["sh", "-c", curl], [sys.executable, "-c", python]):
        said = json.loads(subprocess.run(command, cwd=photo.parent, capture_output=True, check=True).stdout)
        (found,) = said["predictions"]
        assert said["model"] == "plain"
        assert line.split() == [found["label"], f"{found['probability']:.1%}"]


@needs_browser
@pytest.mark.long
def test_several_photos_of_every_kind(server: Running, browser: Chromium, tmp_path: Path) -> None:
    turned, text, plain = tmp_path / "turned.jpg", tmp_path / "text.jpg", tmp_path / "plain.png"
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (60, 40), "green").save(turned, exif=exif)
    text.write_text("hello")
    plain.write_bytes(encoded(3, "PNG"))
    browser.open(f"http://127.0.0.1:{server.port}/")
    browser.give("drop", [turned, text, plain])
    browser.give("paste", [HEIC])
    heic, first, second, third = answered(browser, 4)
    assert all("%" in line for line in (heic, first, third))
    assert "not a readable image" in second
    browser.wait("[...document.querySelectorAll('.facts-line')].filter((it) => it.textContent).length === 3")
    facts = browser.run("[...document.querySelectorAll('.facts-line')].map((it) => it.textContent)")
    assert facts[1].startswith("40×60 pixels")  # upright, as the server sees it
    # What the browser cannot show the server draws.
    browser.wait("document.querySelector('.result img').naturalWidth > 0")
    for dark in (False, True):
        for width in (390, 1280):
            browser.be(width, 900, dark=dark)
            assert (browser.violations(), browser.overhang()) == ([], 0)


@needs_browser
@pytest.mark.long
def test_a_busy_server_is_asked_again(server: Running, browser: Chromium, photo: Path) -> None:
    browser.open(f"http://127.0.0.1:{server.port}/")
    browser.run(
        "(() => { const real = window.fetch; let count = 0; window.fetch = (path, options) => count++ ? real(path, options) : "
        """Promise.resolve(new Response('{"error": "busy"}', { status: 503, headers: { "Retry-After": "1" } })); })()"""
    )
    browser.choose("#file", [photo])
    browser.wait(f"{LINES}[0].includes('1 s')")
    assert "%" in answered(browser, 1)[0]


@needs_browser
@pytest.mark.long
def test_the_camera(server: Running, browser: Chromium) -> None:
    browser.open(f"http://127.0.0.1:{server.port}/")
    browser.run("document.getElementById('camera').click()")
    browser.wait("!document.querySelector('video').hidden && document.querySelector('video').videoWidth")
    browser.run("document.getElementById('camera').click()")
    assert "%" in answered(browser, 1)[0]
    assert browser.run("document.querySelector('video').hidden")


def give_token(browser: Chromium, token: str) -> None:
    browser.wait("!document.getElementById('ask').hidden")
    browser.run(f"document.getElementById('token').value = '{token}'; document.querySelector('#ask button').click()")


@needs_browser
@pytest.mark.long
def test_a_token_and_photos_named_by_keys(
    collecting: Running, served_home: Path, tmp_path: Path, browser: Chromium
) -> None:
    photos = [tmp_path / f"{seed}.jpg" for seed in range(6)]
    for seed, path in enumerate(photos):
        path.write_bytes(encoded(seed))
    browser.be(1280, 900)
    browser.open(f"http://127.0.0.1:{collecting.port}/", "!document.getElementById('ask').hidden")
    for token in ("wrong ü", "wrong"):
        give_token(browser, token)
        browser.wait("!document.getElementById('ask').hidden && !document.getElementById('refused').hidden")
    assert browser.violations() == []
    give_token(browser, TOKEN)
    browser.wait("document.body.dataset.ready")
    browser.choose("#file", photos)
    answered(browser, 6)
    assert browser.run("document.querySelector('#owner').hidden") is False
    browser.wait("(async () => (await (await ask('v1/review')).json()).photos.length === 6)()")
    browser.open(f"http://127.0.0.1:{collecting.port}/review")  # the tab knows the token
    shares = browser.run("found.photos.map(({ top }) => top[0].probability)")
    assert shares == sorted(shares)
    assert len(shares) == 6
    browser.run("document.querySelector('.review .choices button').focus()")
    browser.press("2")
    browser.wait("document.querySelectorAll('.named').length === 1")
    browser.run("document.querySelectorAll('.review')[1].querySelector('.choices button').click()")
    browser.wait("document.querySelectorAll('.named').length === 2")
    browser.wait("[...document.images].every((image) => image.complete && image.naturalWidth)")
    named = browser.run(
        "found.photos.filter(({ label }) => label).map(({ photo, top, label }) => [photo, top.map((it) => it.label), label])"
    )
    (first, first_top, second_of_first), (second, second_top, first_of_second) = named
    assert (second_of_first, first_of_second) == (first_top[1], second_top[0])
    rows = {row["image"]: row["label"] for row in table_rows(served_home / "collected" / "labels.csv")}
    assert rows == {f"photos/{first}": second_of_first, f"photos/{second}": first_of_second}
    for width, dark in ((390, True), (1280, False)):
        browser.be(width, 900, dark=dark)
        assert (browser.violations(), browser.overhang()) == ([], 0)
    browser.run("document.querySelectorAll('.review')[1].querySelector('[aria-pressed=true]').click()")  # takes it back
    browser.wait("document.querySelectorAll('.named').length === 1")
    for _ in range(2):
        browser.run("document.querySelectorAll('.review')[2].querySelector('.remove').click()")
    browser.wait("document.querySelectorAll('.review').length === 5")
    assert len(list((served_home / "collected" / "photos").iterdir())) == 5


def bearer(**others: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {TOKEN}", **others}


def test_only_its_own_pages_name_photos(collecting: Running, server: Running) -> None:
    collecting.post("/v1/predict", encoded(70), **bearer())
    listed: dict[str, Any] = {"photos": []}
    while not listed["photos"]:
        listed = collecting.get("/v1/review", **bearer()).json
    path, body = f"/v1/review/{listed['photos'][0]['photo']}", b'{"label": "a"}'
    json_type = {"Content-Type": "application/json"}

    def put(headers: dict[str, str], body: bytes = body, path: str = path) -> int:
        return collecting.request("PUT", path, body, bearer(**headers)).status

    assert put({**json_type, "Origin": "http://evil.example"}) == 403
    assert put({**json_type, "Origin": "null"}) == 403
    assert put({**json_type, "Origin": "http://["}) == 403
    assert put({"Content-Type": "text/plain"}) == 415
    assert put(json_type, b'{"label": "z"}') == 422
    assert put(json_type, path="/v1/review/..%2Flabels.csv") == 404
    assert put({**json_type, "Origin": f"http://127.0.0.1:{collecting.port}"}) == 200
    assert put(json_type, b'{"label": null}') == 200
    shown = collecting.get(path, **bearer())
    assert Image.open(io.BytesIO(shown.body)).format == "JPEG"
    assert server.get("/v1/review").status == 404  # which collects nothing
    table = collecting.get("/v1/review/labels.csv", **bearer()).body.decode()
    assert next(csv.reader(io.StringIO(table))) == list(COLUMNS)


@pytest.mark.long
def test_from_service_back_to_training(served_home: Path, tmp_path: Path) -> None:
    """What is collected and named is what finetune reads, as it is."""
    folder = tmp_path / "clients' photos"
    with serving(served_home, "noise", "--collect", str(folder)) as running:
        for host in ("evil.example", "["):
            assert running.request("GET", "/v1/review", headers={"Host": host}).status == 403
        photos: list[Any] = []
        while len(photos) < 24:  # a photo that comes while others wait for the disk is let go
            for seed in range(24):
                running.post("/v1/predict", encoded(seed))
            photos = running.get("/v1/review").json["photos"]
        for number, each in enumerate(photos[:20]):
            body = json.dumps({"label": "ab"[number % 2]}).encode()
            path = f"/v1/review/{each['photo']}"
            assert running.request("PUT", path, body, {"Content-Type": "application/json"}).status == 200
        running.process.send_signal(15)
        assert running.process.ended().returncode == 0
    data = open_data(str(folder))
    assert sum(len(source) for source in data.splits.values()) == 20  # what has no name teaches nothing
    run = tmp_path / "run"
    done = type_command(
        tmp_path, "finetune", str(folder), "--quick", "--out", str(run), "--from", str(served_home / "noise")
    )
    assert done.returncode == 0, done.stderr
    assert vitral.load(run, listener=ignore).class_names == ("a", "b")
