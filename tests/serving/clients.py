"""Many clients in one thread, on bare connections: what they take of the processor is missing to the server."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from types import TracebackType

from tests.serving.conftest import Reply

PATIENCE = 150.0  # seconds that an answer may take before it counts as lost
GONE = (ConnectionError, asyncio.IncompleteReadError)  # what a client sees of a server that ended


def request(path: str, body: bytes = b"", method: str = "POST", **headers: str) -> bytes:
    """Return the bytes of a request."""
    lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


class Connection:
    """A connection that is kept from one request to the next, and made anew where the server closed it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def __aenter__(self) -> "Connection":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if (
            self.streams is not None and self.streams[0].at_eof()
        ):  # the server keeps a connection so long that is not used
            self.leave()
        if self.streams is None:
            self.streams = await asyncio.open_connection("127.0.0.1", self.port)
        return self.streams

    async def ask(self, content: bytes) -> Reply:
        """Send a request and return its answer; the connection is closed on an error."""
        try:
            async with asyncio.timeout(PATIENCE):
                reader, writer = await self.open()
                writer.write(content)
                return await self._answer(reader)
        except BaseException:
            self.leave()
            raise

    async def _answer(self, reader: asyncio.StreamReader) -> Reply:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").splitlines()
        pairs = [line.partition(":") for line in head[1:] if line]
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        body = await reader.readexactly(int(headers["content-length"]))
        if headers.get("connection") == "close":
            self.leave()
        return Reply(int(head[0].split()[1]), headers, body)

    async def cut(self, content: bytes, at: float, reset: bool) -> None:
        """Send the first part of a request and leave, politely or not; at the end of it without waiting for the answer."""
        self.leave()
        _, writer = await self.open()
        writer.write(content[: round(at * len(content))])
        await writer.drain()
        if reset:
            writer.transport.abort()
        self.leave()

    def leave(self) -> None:
        if self.streams is not None:
            self.streams[1].close()
            self.streams = None


Turn = Callable[[int, Connection], Awaitable[None]]


def keep_asking(port: int, clients: int, seconds: float, turn: Turn) -> None:
    """Let so many clients take turn after turn, each on its connection, for so long (a closed loop)."""
    until = time.monotonic() + seconds

    async def client(number: int) -> None:
        async with Connection(port) as connection:
            while time.monotonic() < until:
                await turn(number, connection)

    async def everybody() -> None:
        await asyncio.gather(*map(client, range(clients)))

    asyncio.run(everybody())


@dataclass(frozen=True)
class Arrival:
    """A request of an open loop, and what came of it.

    Attributes:
        due: When it was to be sent, in seconds from the first.
        seconds: From then to its answer.
        reply: The answer.
    """

    due: float
    seconds: float
    reply: Reply


def arrive(port: int, rate: float, seconds: float, contents: Sequence[bytes]) -> list[Arrival]:
    """Send so many requests a second, whatever becomes of those before (an open loop)."""
    arrivals: list[Arrival] = []
    idle: list[Connection] = []

    async def one(due: float, started: float, content: bytes) -> None:
        connection = idle.pop() if idle else Connection(port)
        reply = await connection.ask(content)
        idle.append(connection)
        arrivals.append(Arrival(due, time.monotonic() - started - due, reply))

    async def everybody() -> None:
        started = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for number in range(round(rate * seconds)):
                due = number / rate
                if (early := started + due - time.monotonic()) > 0:
                    await asyncio.sleep(early)
                group.create_task(one(due, started, contents[number % len(contents)]))
        for connection in idle:
            connection.leave()

    asyncio.run(everybody())
    return arrivals


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which such a share of them lies."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]
