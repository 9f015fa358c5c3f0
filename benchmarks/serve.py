"""`vitral serve` beside other servers of the same network, and beside its own engine alone, in turns in one run.

    python benchmarks/serve.py runs/photos --photos photos/ --peers lit/bin/python tri/bin/python --json serve.json

For each classifier (a folder or a name), in every round: the engine alone, on images in memory and from encoded bytes
(serve_alone.py); then each server in turn, from its start to its end, by clients in a process of their own (serve_clients.py):
1, 8 and 64 that ask again when they have an answer, and an open loop at a constant rate, half and four fifths of what the
engine does from bytes. The peers (serving_peers/) have the same weights and the same preprocessing, written as their users do,
with Pillow, torchvision and torch on all cores: plain FastAPI, one request at a time and in its threads; LitServe; BentoML;
Triton, by PyTriton, which brings its server as a package. The last three are run by the first interpreter of --peers that has
them and Vitral's packages, too:

    python -m venv lit && lit/bin/pip install -e '.[serve]' litserve
    python -m venv ben && ben/bin/pip install -e '.[serve]' bentoml
    python -m venv tri && tri/bin/pip install -e '.[serve]' nvidia-pytriton 'numpy<2'

Beside images/s and the milliseconds of the median and the 99th per cent stand the milliseconds of processor time that the
server takes for an image, which other work on the machine changes little, and those of a client for a request.
"""

import argparse
import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serve_clients import requests_of

HERE = Path(__file__).parent
CLIENTS = (1, 8, 64)
RATES = (0.5, 0.8)  # of the engine's pace from bytes
START_SECONDS = 120.0
END_SECONDS = 40.0
TICKS = os.sysconf("SC_CLK_TCK")
FIGURES = ("images_per_second", "p50_ms", "p99_ms", "server_ms_per_image", "client_ms_per_request")

Figures = dict[str, Any]


@dataclass(frozen=True)
class Contender:
    """A server.

    Attributes:
        name: In the table.
        command: What starts it; {classifier} and {port} are filled in.
        path: Where it takes images.
        form: How, as serve_clients.py knows it.
        package: What its interpreter needs.
    """

    name: str
    command: tuple[str, ...]
    path: str
    form: str
    package: str


def contenders(interpreters: list[str]) -> list[Contender]:
    """Return the servers whose packages are there."""

    def peer(name: str, file: str, path: str, form: str, package: str, *further: str) -> Contender:
        python = next((each for each in interpreters if _has(each, package)), interpreters[0])
        command = (python, str(HERE / "serving_peers" / file), "{classifier}", "{port}", *further)
        return Contender(name, command, path, form, package)

    ours = (sys.executable, "-m", "vitral", "serve", "{classifier}", "--port", "{port}")
    listed = [
        Contender("vitral serve", ours, "/v1/predict", "raw", "vitral"),
        peer("FastAPI", "fastapi_torch.py", "/predict", "raw", "fastapi"),
        peer("FastAPI, threads", "fastapi_torch.py", "/predict", "raw", "fastapi", "threads"),
        peer("LitServe", "litserve_torch.py", "/predict", "json", "litserve"),
        peer("BentoML", "bentoml_torch.py", "/predict", "list", "bentoml"),
        peer("Triton", "triton_torch.py", "/v2/models/network/infer", "v2", "pytriton"),
    ]
    has = {each: _has(each.command[0], each.package) for each in listed}
    for each in listed:
        if not has[each]:
            print(f"{each.name} is left out: {each.package} is not installed in {', '.join(interpreters)}.")
    return [each for each in listed if has[each]]


def _has(python: str, package: str) -> bool:
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec('{package}') is None)"
    return subprocess.run([python, "-c", code]).returncode == 0


@contextlib.contextmanager
def running(contender: Contender, classifier: str, photos: Path) -> Iterator[tuple[str, int, float]]:
    """Start a server; give its address, its process and the seconds to its first answer. It is ended with all its processes."""
    port, request = _free_port(), requests_of(photos, contender.path, contender.form)[0]
    command = [word.format(classifier=classifier, port=port) for word in contender.command]
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, process_group=0)
    try:
        while not _answers(port, request):
            if process.poll() is not None or time.monotonic() > start + START_SECONDS:
                raise SystemExit(f"{contender.name} does not start: {' '.join(command)}")
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}{contender.path}", process.pid, time.monotonic() - start
    finally:
        _end(process)


def _answers(port: int, request: bytes) -> bool:
    """Tell whether a server answers a photo."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=START_SECONDS) as connection:
            connection.sendall(request)
            return connection.recv(64).startswith(b"HTTP/1.1 200")
    except OSError:
        return False


def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_SECONDS)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def processor_seconds(root: int) -> float:
    """Return what a process and those that it has started have used."""
    parents, used = {}, {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = file.read_text().rpartition(")")[2].split()
            parents[int(file.parent.name)], used[int(file.parent.name)] = (
                int(fields[1]),
                int(fields[11]) + int(fields[12]),
            )
    family = {root}
    while further := {each for each, parent in parents.items() if parent in family} - family:
        family |= further
    return sum(used.get(each, 0) for each in family) / TICKS


def point(address: str, process: int, contender: Contender, photos: Path, *load: str) -> Figures:
    """Let clients ask; return what they found."""
    before = processor_seconds(process)
    command = [sys.executable, str(HERE / "serve_clients.py"), address, str(photos), "--form", contender.form, *load]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if ended.returncode:
        return dict.fromkeys(FIGURES) | {"statuses": {}}
    found: Figures = json.loads(ended.stdout)
    answered = max(1, found["answered"])
    return found | {"server_ms_per_image": round(1000 * (processor_seconds(process) - before) / answered, 2)}


def measure(contender: Contender, classifier: str, photos: Path, seconds: float, pace: float) -> dict[str, Figures]:
    """Return the figures of a server at each number of clients and each rate."""
    found: dict[str, Figures] = {}
    with running(contender, classifier, photos) as (address, process, started):
        ask = ("--seconds", str(seconds))
        for clients in CLIENTS:
            point_name = f"{clients} client{'s' if clients > 1 else ''}"
            found[point_name] = point(address, process, contender, photos, "--clients", str(clients), *ask)
        for share in RATES:
            rate = f"{share * pace:.1f}"
            found[f"open loop, {share:.0%}"] = point(address, process, contender, photos, "--rate", rate, *ask)
    return found | {"start": {"seconds": round(started, 1)}}


def alone(classifier: str, photos: Path, seconds: float) -> Figures:
    """Return what the engine does without a server."""
    command = [sys.executable, str(HERE / "serve_alone.py"), classifier, str(photos), "--seconds", str(seconds)]
    found: Figures = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return found


def middle(rounds: list[Figures]) -> Figures:
    """Return the median of each figure over some rounds."""
    names = [name for name in rounds[0] if isinstance(rounds[0][name], int | float)]
    values = {name: [each[name] for each in rounds if each.get(name) is not None] for name in names}
    return {name: statistics.median(found) for name, found in values.items()} | {
        "statuses": [each.get("statuses") for each in rounds]
    }


def table(results: dict[str, dict[str, Figures]], pace: float) -> Iterator[str]:
    """Give a table: a row for each server and load, with the share of the engine's pace from bytes."""
    yield "| load | server | images/s | of the engine | p50, ms | p99, ms | CPU ms an image | of a client |"
    yield "|---|---|---|---|---|---|---|---|"
    for load in next(iter(results.values())):
        for server, points in results.items():
            if load != "start":
                share, *times = (points[load].get(name) for name in FIGURES)
                shown = [f"{share:.1f}", f"{share / pace:.0%}"] if share is not None else ["-", "-"]
                row = [load, server, *shown, *("-" if value is None else f"{value:g}" for value in times)]
                yield f"| {' | '.join(row)} |"
    for server, points in results.items():
        yield f"{server}: the first answer {points['start']['seconds']:.1f} s after its start."


def compare(classifier: str, wanted: argparse.Namespace) -> dict[str, Any]:
    """Measure a classifier by all servers, in rounds; print the table and return everything."""
    engines: list[Figures] = []
    rounds: dict[str, list[dict[str, Figures]]] = {}
    for _ in range(wanted.rounds):
        engines.append(alone(classifier, wanted.photos, 2 * wanted.seconds))
        pace = statistics.median(each["from_bytes"] for each in engines)
        for contender in wanted.contenders:
            found = measure(contender, classifier, wanted.photos, wanted.seconds, pace)
            rounds.setdefault(contender.name, []).append(found)
    results = {
        server: {load: middle([each[load] for each in found]) for load in found[0]} for server, found in rounds.items()
    }
    sizes = {size: statistics.median(each["prepared"][size] for each in engines) for size in engines[0]["prepared"]}
    print(f"\n{classifier}, {engines[0]['computed_by']}: prepared images, by batch size: ", end="")
    print(", ".join(f"{size}: {each:.1f} images/s" for size, each in sizes.items()), end="")
    one = statistics.median(each["one_ms"] for each in engines)
    print(f"; from bytes {pace:.1f} images/s; one photo alone {one:.1f} ms\n")
    print("\n".join(table(results, pace)), flush=True)
    return {"engine": engines, "servers": results}


def main() -> None:
    """Measure, print, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("classifiers", nargs="+")
    parser.add_argument("--photos", type=Path, required=True, help="a folder of JPEGs")
    parser.add_argument("--peers", nargs="+", default=[], help="interpreters that have the peers' packages")
    parser.add_argument("--only", nargs="+", default=[], help="names of servers")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each load")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", type=Path)
    wanted = parser.parse_args()
    wanted.contenders = [
        each for each in contenders([sys.executable, *wanted.peers]) if not wanted.only or each.name in wanted.only
    ]
    results = {classifier: compare(classifier, wanted) for classifier in wanted.classifiers}
    if wanted.json is not None:
        wanted.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
