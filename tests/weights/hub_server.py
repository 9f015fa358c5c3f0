"""A Hub on this machine: the part of its HTTP interface that the official client uses to list, fetch and commit files."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
Repositories = dict[str, dict[str, bytes]]


class Handler(BaseHTTPRequestHandler):
    """Answers from the server's repositories; what it does not know is a 404 and is remembered."""

    server: "HubServer"

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path).strip("/").split("/")
        if path[:2] == ["api", "models"]:
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
        data = self.server.repositories.get(name, {}).get(path)
        if data is None:
            self.missing("EntryNotFound" if name in self.server.repositories else "RepoNotFound")
            return
        self.send_response(200)
        for header, value in (("ETag", f'"{_oid(data)}"'), ("X-Repo-Commit", COMMIT), ("Content-Length", len(data))):
            self.send_header(header, str(value))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = unquote(urlsplit(self.path).path).strip("/").split("/")
        if self.headers.get("Authorization") != "Bearer hf_right":
            self.answer({"error": "Invalid credentials"}, 401)
        elif path == ["api", "repos", "create"]:
            made = json.loads(body)
            name = f"{made['organization']}/{made['name']}" if made.get("organization") else f"me/{made['name']}"
            self.server.repositories.setdefault(name, {})
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
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Keep the test's output clean."""


class HubServer(ThreadingHTTPServer):
    """The Hub's repositories, by name, each a mapping from path to bytes."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories: Repositories = {}
        self.unknown: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def hub() -> Iterator[HubServer]:
    """Run a Hub while the block runs."""
    server = HubServer()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _oid(data: bytes) -> str:
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()
