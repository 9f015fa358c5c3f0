"""A Hub on this machine: the part of its HTTP interface that the official client uses to list, fetch and commit files.

It can have the faults that real servers have, one a request for a file's content, and serves files at plain addresses, too.
"""

import base64
import hashlib
import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

from tests.http_servers import in_thread

COMMIT = "0123456789abcdef0123456789abcdef01234567"
Repositories = dict[str, dict[str, bytes]]
SLOW_SECONDS = 0.02  # between two pieces of a slow answer


class Handler(BaseHTTPRequestHandler):
    """Answers from the server's repositories; what it does not know is a 404 and is remembered."""

    server: "HubServer"

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path).strip("/").split("/")
        if path[0] == "files":
            self.plain("/".join(path[1:]))
        elif path[:2] == ["api", "models"]:
            self.describe("/".join(path[2:4]), path[4:])
        elif len(path) >= 5 and path[2] == "resolve":
            self.file("/".join(path[:2]), "/".join(path[4:]))
        else:
            self.missing()

    do_HEAD = do_GET

    def describe(self, name: str, rest: list[str]) -> None:
        files = self.server.repositories.get(name)
        if files is None:
            self.missing("RepoNotFound")
        elif rest[:1] == ["tree"]:
            self.answer(
                [{"type": "file", "path": path, "size": len(data), "oid": _oid(data)} for path, data in files.items()]
            )
        else:
            siblings = [{"rfilename": path} for path in files]
            self.answer(
                {"id": name, "modelId": name, "sha": COMMIT, "private": False, "siblings": siblings, "tags": []}
            )

    def file(self, name: str, path: str) -> None:
        if name in self.server.gated and self.headers.get("Authorization") != "Bearer hf_right":
            self.refuse(401 if "Authorization" not in self.headers else 403, "GatedRepo")
            return
        if path in self.server.busy:
            self.refuse(503)
            return
        data = self.server.repositories.get(name, {}).get(path)
        if data is None:
            self.missing("EntryNotFound" if name in self.server.repositories else "RepoNotFound")
            return
        large = path.endswith((".safetensors", ".npz"))
        version = self.server.lies.get(path) or (hashlib.sha256(data).hexdigest() if large else _oid(data))
        if (moved := self.server.moved.get(f"{name}/{path}")) is not None:
            linked = {"X-Linked-Etag": f'"{version}"', "X-Linked-Size": str(len(data)), "X-Repo-Commit": COMMIT}
            self.send_on(moved, linked)
        else:
            self.content(data, {"ETag": f'"{version}"', "X-Repo-Commit": COMMIT})

    def plain(self, path: str) -> None:
        """Answer from the files at plain addresses."""
        if path in self.server.closed:
            self.refuse(403)
        elif path in self.server.moved:
            self.send_on(self.server.moved[path], {})
        elif path in self.server.files:
            data = self.server.files[path]
            self.content(data, {"ETag": f'"{_oid(data)}"'})
        else:
            self.missing("EntryNotFound")

    def content(self, data: bytes, headers: dict[str, str]) -> None:
        """Send a file, or the part that is asked for, with the next fault if there is one."""
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        same = self.headers.get("If-Range", headers["ETag"]) == headers["ETag"]
        start = int(wanted[1]) if wanted and same and self.server.ranges else 0
        fault = ""
        if self.command == "GET":
            self.server.asked.append((self.path, dict(self.headers)))
            fault = self.server.faults.pop(0) if self.server.faults else ""
            if not fault:  # so that a test which counts requests ends
                self.server.release.set()
        if fault == "busy":
            self.refuse(503)
        elif start >= len(data) > 0:
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(data)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            self.send_response(206 if start else 200)
            if start:
                headers |= {"Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"}
            if fault != "unmeasured":
                headers |= {"Content-Length": str(len(data) - start)}
            for header, value in headers.items():
                self.send_header(header, value)
            self.end_headers()
            if self.command == "GET":
                self.send_pieces(data[start:], fault)

    def send_pieces(self, data: bytes, fault: str) -> None:
        """Write an answer's body: all at once, in slow pieces, or only the first half."""
        if fault == "held":
            self.server.release.wait()
        # Counted first: who asked may have all of it, and go on, before this thread does.
        self.server.sent += len(data) // 2 if fault in ("cut", "stalled") else len(data)
        if fault == "stalled":
            self.wfile.write(data[: len(data) // 2])
            self.wfile.flush()
            self.server.release.wait()
        elif fault == "cut":
            self.wfile.write(data[: len(data) // 2])
        elif fault == "slow":
            size = len(data) // 8 + 1
            for first in range(0, len(data), size):
                self.wfile.write(data[first : first + size])
                self.wfile.flush()
                time.sleep(SLOW_SECONDS)
        else:
            self.wfile.write(data)
        self.close_connection = True

    def send_on(self, address: str, headers: dict[str, str]) -> None:
        self.send_response(302)
        for header, value in {"Location": address, "Content-Length": "0", **headers}.items():
            self.send_header(header, value)
        self.end_headers()

    def refuse(self, status: int, code: str = "") -> None:
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = unquote(urlsplit(self.path).path).strip("/").split("/")
        if self.headers.get("Authorization") != "Bearer hf_right":
            self.answer({"error": "Invalid credentials"}, 401)
        elif path == ["api", "repos", "create"]:
            made = json.loads(body)
            name = f"{made['organization']}/{made['name']}" if made.get("organization") else f"me/{made['name']}"
            self.server.repositories.setdefault(name, {})
            self.server.kinds[name] = (made.get("type", "model"), made.get("sdk"))
            self.answer({"url": f"{self.server.address}/{name}", "id": name, "name": name})
        elif path == ["api", "validate-yaml"]:
            self.answer({"errors": [], "warnings": []})
        elif path[4:5] == ["preupload"]:
            files = json.loads(body)["files"]
            self.answer(
                {"files": [{"path": file["path"], "uploadMode": "regular", "shouldIgnore": False} for file in files]}
            )
        elif path[4:5] == ["commit"]:
            self.commit("/".join(path[2:4]), body)
        else:
            self.missing()

    def commit(self, name: str, body: bytes) -> None:
        for line in body.splitlines():
            entry = json.loads(line)
            if entry["key"] == "file":
                self.server.repositories[name][entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
        self.answer(
            {"commitUrl": f"{self.server.address}/{name}/commit/{COMMIT}", "commitOid": COMMIT, "success": True}
        )

    def answer(self, content: object, status: int = 200) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def missing(self, code: str = "") -> None:
        self.server.unknown += [] if code else [f"{self.command} {self.path}"]
        self.send_response(404)
        if code:
            self.send_header("X-Error-Code", code)
        if code == "EntryNotFound":
            self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Keep the test's output clean."""


class HubServer(ThreadingHTTPServer):
    """The Hub's repositories, by name, each a mapping from path to bytes.

    Attributes:
        repositories: those.
        kinds: of those that were made: "model" or "space", and what runs a Space.
        unknown: requests that nothing here knows.
        files: content at plain addresses, below /files/.
        moved: such addresses, or files in repositories, that send on to others.
        gated: repositories that want the right token.
        busy: files of repositories for which it is always too busy.
        closed: plain addresses that nobody may read.
        lies: ETags that are not those of the content, by path.
        faults: of the next requests for content: "cut" after half, "stalled" there, "held" before anything is sent, "slow",
            "busy", "unmeasured" or none.
        release: lets go of what is held or stalled; a request without a fault does, too.
        ranges: whether parts of files can be had.
        asked: the requests for content, with their headers.
        sent: bytes of content.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories: Repositories = {}
        self.kinds: dict[str, tuple[str, str | None]] = {}
        self.unknown: list[str] = []
        self.files: dict[str, bytes] = {}
        self.moved: dict[str, str] = {}
        self.gated: set[str] = set()
        self.busy: set[str] = set()
        self.closed: set[str] = set()
        self.lies: dict[str, str] = {}
        self.faults: list[str] = []
        self.release = threading.Event()
        self.ranges = True
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.sent = 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def hub() -> Iterator[HubServer]:
    """Run a Hub while the block runs."""
    with in_thread(HubServer()) as server:
        yield server


def _oid(data: bytes) -> str:
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()
