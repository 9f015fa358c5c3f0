"""The process that serves: from classifiers to a socket, and from a signal to its end without losing a request."""

import asyncio
import gc
import json
import logging
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from types import FrameType

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from vitral.advice import argument
from vitral.classifier.folder import state_of_files
from vitral.errors import VitralError, one_line
from vitral.events import Listener, Message, ignore, show
from vitral.serving.app import application
from vitral.serving.batcher import keep_threads
from vitral.serving.collected import Collection
from vitral.serving.gate import LOG, now
from vitral.serving.limits import DRAIN_SECONDS, HEADER_SECONDS, Limits, check_reach
from vitral.serving.measures import Measures
from vitral.serving.refusals import RequestRefused, malformed
from vitral.serving.served import Served
from vitral.serving.service import Service
from vitral.serving.sources import NamedClassifier, names_of
from vitral.serving.tracing import tracing

KEEP_ALIVE_SECONDS = 75  # longer than load balancers' 60, which else send into a connection that is just closing
LARGEST_HEADER = 32 << 10  # bytes of all headers of a request
EVERYWHERE = ("0.0.0.0", "::")  # stand for all addresses of the machine, and are none that a browser finds
BACKLOG = 2048  # connections that wait to be accepted
LEAVING_SECONDS = 1.0  # in which requests that are on their way are still taken, after a termination
LAST_SECONDS = 0.2  # in which a connection that was taken last may still send its request
LOOK_SECONDS = 1.0  # between two looks


class Watcher:
    """Looks at classifiers' files, and loads those that have changed and are settled; `tell` hears of it."""

    def __init__(
        self, service: Service, loads: Mapping[str, tuple[str, Callable[[], object]]], tell: Callable[[str, str], None]
    ) -> None:
        self.service, self.loads, self.tell = service, loads, tell
        self.taken = {name: state_of_files(source) for name, (source, _) in loads.items()}
        self.seen = dict(self.taken)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watcher", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Look no more."""
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            for name, (source, load) in self.loads.items():
                self._look(name, source, load)

    def _look(self, name: str, source: str, load: Callable[[], object]) -> None:
        """Load what has changed, once it looks the same twice: nothing is then writing it."""
        now, before = state_of_files(source), self.seen[name]
        self.seen[name] = now
        if not now or now == self.taken[name] or now != before:
            return
        self.taken[name] = now  # one that fails is tried again when it changes again
        try:
            load()
            self.tell(name, f"version {self.service.models[name].version} is in service")
        except Exception as error:  # whatever came of unfinished files, the version in service is as it was
            self.tell(name, f"the version in service stays; the new one cannot be loaded: {one_line(error)}")


class PatientProtocol(H11Protocol):
    """A connection whose headers must come in time, and that says in JSON what it cannot read."""

    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for headers."""
        super().connection_made(transport)
        self._await_headers()

    def data_received(self, data: bytes) -> None:
        """Take what has come."""
        super().data_received(data)
        self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the waiting."""
        super().connection_lost(exc)
        if self._patience is not None:
            self._patience.cancel()

    def _await_headers(self) -> None:
        """Wait for the rest of headers, if they have begun; between two requests the keep-alive has a time of its own."""
        if self.conn.their_state is not h11.IDLE:
            if self._patience is not None:
                self._patience.cancel()
                self._patience = None
        elif self._patience is None:
            self._patience = self.loop.call_later(HEADER_SECONDS, self._give_up)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, or has headers that are too long."""
        self._refuse(malformed("This is no request in HTTP/1.1, or its headers are too long."))

    def _give_up(self) -> None:
        """Refuse a request whose headers do not end; a connection on which none has begun is closed without a word."""
        if self.conn.trailing_data[0]:
            self._refuse(
                RequestRefused(408, "slow_headers", f"The headers did not come within {HEADER_SECONDS:.0f} seconds.")
            )
        self.transport.close()

    def _refuse(self, refusal: RequestRefused) -> None:
        body = json.dumps(refusal.to_json()).encode()
        headers = [("content-type", "application/json"), ("content-length", str(len(body))), ("connection", "close")]
        start = h11.Response(status_code=refusal.status, headers=headers)
        for event in (start, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


class Server(uvicorn.Server):
    """A server that ends without losing a request.

    The first signal lets requests that are on their way still come for a moment, each answer closing its connection; then no
    more are taken, and those that were are answered. The second signal ends at once.
    """

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self.service = service

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Take requests until a signal, which may come before the first of them."""
        self._loop = asyncio.get_running_loop()
        await super().serve(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to end."""
        if self.service.draining:
            self.should_exit = self.force_exit = True
            return
        self.service.draining = True
        self._loop.call_soon_threadsafe(self._loop.call_later, LEAVING_SECONDS, self._take_no_more)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more connections, then no more requests, and return when all that were taken are answered."""
        for server in self.servers:
            server.close()
        await asyncio.sleep(LAST_SECONDS)
        await super().shutdown(sockets)

    def _take_no_more(self) -> None:
        self.should_exit = True


def bound(host: str, port: int) -> socket.socket:
    """Return a socket bound to an address; port 0 for any that is free.

    Raises:
        VitralError: It is taken, or not of this machine.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        if sys.platform != "win32":  # where it would share the port with another server
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        raise VitralError(
            f"Cannot listen at {host}:{port}: {error.strerror or error}; choose another port or host."
        ) from error
    return listener


def address_of(listener: socket.socket) -> str:
    """Return the address of a socket as a browser takes it; of one for every address of the machine, what others take."""
    host, port = listener.getsockname()[:2]
    if host in EVERYWHERE:
        return f"http://127.0.0.1:{port}, and to other machines at this one's name or address with :{port}"
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def serve(
    sources: Sequence[NamedClassifier],
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    open: bool = False,
    limits: Limits | None = None,
    collect: str | Path | None = None,
    warming: Callable[[], AbstractContextManager[None]] = nullcontext,
    listener: Listener = show,
) -> None:
    """Answer requests until a signal (SIGTERM, Ctrl-C) ends it, and then what was accepted.

    Args:
        sources: The classifiers, or folders of several; the first is meant where a request names none.
        host: The address to listen at.
        port: The port; 0 for any that is free.
        token: What clients must send as "Authorization: Bearer TOKEN"; None for nothing.
        open: Whether other machines are let in without a token.
        limits: What a request may cost.
        collect: The folder for photos of which the answers are least sure, to be named at /review; None for none.
        warming: What each classifier is loaded within: seconds in which nothing would be lost by an end at once.
        listener: Receives where it listens, and what serves there.

    Raises:
        VitralError: Other machines would be let in without a token, the address cannot be listened at, two classifiers
            have the same name, or photos cannot be collected.
        WeightsError: A classifier cannot be read.
    """
    check_reach(host, token, open=open)
    if collect is not None and token is None and open:
        raise VitralError(
            f"Everybody could see the photos that {argument('collect')} stores: set {argument('token')}, too."
        )
    named = names_of(sources, listener)
    listening = bound(host, port)
    service = Service(limits or Limits(), Measures(), deterministic=any(source.deterministic for source in sources))
    service.local = token is None and not open
    try:
        for name, source in named.items():
            with warming():
                served = _load(service, name, source, listener)
            listener(Message(f"{name}: {served.described()}"))
            if doubt := served.classifier.doubt():
                listener(Message(doubt, warning=True))
        if collect is not None:
            service.collection = _collection(collect, service)
            listener(Message(f"Photos with the least sure answers are collected in {collect}: name them at /review."))
        loads = {name: (source.name, partial(_load, service, name, source)) for name, source in named.items()}
        watcher = Watcher(service, loads, _tell)
        keep_threads(1)  # of this thread, which only passes on: see _load
        listening.listen(BACKLOG)
        listener(Message(f"Answers at {address_of(listening)}; Ctrl-C ends it."))
        spans = tracing(listener)
        _run(application(service, token, spans), service, listening)
        watcher.end()
        if spans is not None:
            spans.end()
    finally:
        service.end()
        listening.close()
        keep_threads(service.threads)


def _collection(folder: str | Path, service: Service) -> Collection:
    """Return what collects the photos of a server's one classifier.

    Raises:
        VitralError: There are several, or photos may have several classes; or the folder is not to be had.
    """
    if len(service.models) > 1:
        raise VitralError(f"{argument('collect')} takes the photos of one classifier; start a server for each.")
    if not service.model(None).classifier.task.exclusive:
        raise VitralError(
            f"{argument('collect')} is for classifiers of one class for each photo, which a click can give."
        )
    return Collection(folder, lambda text: LOG.error("%s", json.dumps({"time": now(), "collect": text})))


def _load(service: Service, name: str, source: NamedClassifier, listener: Listener = ignore) -> Served:
    """Take a classifier into service; it is read and tried in a thread that ends.

    What computes with several threads once has these for itself as long as it lives. GNU's OpenMP lets threads wait asleep, not
    spinning, once there are more of them than cores, and the engine takes up to half again as long.
    """
    with ThreadPoolExecutor(1, "loader", partial(keep_threads, service.threads)) as loader:
        classifier = loader.submit(source.load, listener).result()
    served = service.load(name, classifier)
    settle()
    return served


def settle() -> None:
    """Collect what is not needed, and leave what is loaded out of further collections.

    Each of those would go through all of it, hundreds of thousands of objects: 0.4 s in which nobody is answered, every
    thousand requests.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def _tell(name: str, text: str) -> None:
    LOG.info("%s", json.dumps({"time": now(), "model": name, "reload": text}))


def _run(app: ASGIApp, service: Service, listening: socket.socket) -> None:
    log_lines()
    config = uvicorn.Config(
        app,
        http=PatientProtocol,
        ws="none",
        lifespan="off",
        loop="asyncio",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=round(DRAIN_SECONDS),
        h11_max_incomplete_event_size=LARGEST_HEADER,
        backlog=BACKLOG,
    )
    Server(config, service).run([listening])


def log_lines() -> None:
    """Write the log as lines of JSON to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    LOG.setLevel(logging.INFO)
    LOG.handlers, LOG.propagate = [handler], False
    for others in ("uvicorn.error", "python_multipart"):  # which are no lines of JSON
        logging.getLogger(others).setLevel(logging.CRITICAL)
