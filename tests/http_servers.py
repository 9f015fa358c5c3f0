"""Small HTTP servers of the tests, each in a thread of the test's own process."""

import contextlib
import threading
from collections.abc import Iterator
from socketserver import BaseServer
from typing import TypeVar

Kind = TypeVar("Kind", bound=BaseServer)


@contextlib.contextmanager
def in_thread(server: Kind) -> Iterator[Kind]:
    """Let a server answer while the block runs."""
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
