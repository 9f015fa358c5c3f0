"""One photo at an address: fetched by http within bounds of size, time and redirects, and nothing else is asked."""

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from tests.cases import every_case
from tests.http_servers import in_thread
from vitral.data.image_stream import list_unlabelled
from vitral.data.web_image import fetch, is_web_image
from vitral.errors import ImageError


class Handler(http.server.SimpleHTTPRequestHandler):
    """Gives the files of a folder, and redirects for ever, or to a file of this machine."""

    def do_GET(self) -> None:
        if self.path == "/slow.jpg":
            self.send_response(200)
            self.end_headers()
            for _ in range(100):
                self.wfile.write(b"x")
                threading.Event().wait(0.02)
        elif self.path.startswith("/to/"):
            self.send_response(302)
            self.send_header("Location", {"/to/file": "file:///etc/hostname"}.get(self.path, self.path))
            self.end_headers()
        else:
            super().do_GET()

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("site")
    Image.new("RGB", (9, 7), "red").save(folder / "cat.jpg")
    (folder / "broken.jpg").write_bytes(b"no image")

    def handle(*given: object) -> Handler:
        return Handler(*given, directory=str(folder))  # type: ignore[arg-type]

    with in_thread(http.server.ThreadingHTTPServer(("127.0.0.1", 0), handle)) as server:
        yield f"http://127.0.0.1:{server.server_address[1]}"


def test_a_photo_is_read_from_its_address(site: str) -> None:
    address = f"{site}/cat.jpg?width=300"
    (image,) = list_unlabelled(address)
    assert image.name == address
    assert image.read().shape == (7, 9, 3)


@every_case(
    ("path", "why"),
    [
        ("gone.jpg", "404"),
        ("broken.jpg", "not a readable image"),
        ("to/itself", "redirect"),
        ("to/file", "cannot be fetched"),
    ],
)
def test_what_is_no_photo_is_one_line_that_names_the_address(site: str, path: str, why: str) -> None:
    (image,) = list_unlabelled(f"{site}/{path}")
    with pytest.raises(ImageError, match=why) as refused:
        image.read()
    assert f"'{site}/{path}'" in str(refused.value)


def test_size_and_time_are_limited(site: str) -> None:
    with pytest.raises(ImageError, match="larger than"):
        fetch(f"{site}/cat.jpg", most=100)
    with pytest.raises(ImageError, match="too long"):
        fetch(f"{site}/slow.jpg", seconds=0.2)


@every_case(
    ("name", "is_photo"),
    [
        ("https://host/cat.jpg", True),
        ("HTTP://host/photo?id=3", True),
        ("https://host/train-{000..099}.tar", False),
        ("https://host/photos.parquet", False),
        ("https://host/photos/", False),
        ("ftp://host/cat.jpg", False),
        ("file:///cat.jpg", False),
        ("cat.jpg", False),
        ("https://[host/cat.jpg", False),
    ],
)
def test_which_names_are_addresses_of_photos(name: str, is_photo: bool) -> None:
    assert is_web_image(name) == is_photo


def test_nothing_listens(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="cannot be fetched"):
        fetch("http://127.0.0.1:9/cat.jpg", seconds=5)
