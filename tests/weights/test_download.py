"""Fetching published weights from servers as bad as real ones: nothing half, nothing false, nothing twice."""

import hashlib
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from huggingface_hub import constants

import vitral
from tests.weights.hub_server import HubServer, hub
from vitral.errors import StorageError, VitralError, WeightsError
from vitral.events import Event, Message, Progress, ignore
from vitral.weights import download
from vitral.weights.named.fetch import fetch
from vitral.weights.named.table import PublishedWeights, kept

PLAIN = PublishedWeights("vit-mu16@plain", "x", "Apache-2.0", "original", "ViT.npz", 1, "x", address="https://later/")
ON_HUB = PublishedWeights("vit-mu16@hub", "x", "Apache-2.0", "timm", "model.safetensors", 1, "x", repository="lab/vit")


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return vitral.convert("vit-mu16", tmp_path_factory.mktemp("made") / "ViT.npz", format="original").path.read_bytes()


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weights: bytes) -> Iterator[HubServer]:
    """A server with the same bytes at a plain address and in a repository; caches of this test alone, and no long waits."""
    monkeypatch.setattr(download, "PAUSE_SECONDS", 0.01)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with hub() as running:
        monkeypatch.setattr(constants, "ENDPOINT", running.address)
        template = f"{running.address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        running.files["ViT.npz"] = weights
        running.repositories["lab/vit"] = {"model.safetensors": weights, "config.json": b"{}"}
        yield running


@pytest.fixture(params=["plain", "hub"])
def row(request: pytest.FixtureRequest, server: HubServer) -> PublishedWeights:
    return replace(PLAIN, address=f"{server.address}/files/") if request.param == "plain" else ON_HUB


def refusal(row: PublishedWeights) -> str:
    """Return the one line of what must fail, which leaves no file to be taken for a whole one."""
    with pytest.raises(VitralError) as refused:
        fetch(row, ignore)
    assert kept(row) is None
    assert "\n" not in str(refused.value)
    return str(refused.value)


def leftovers(folder: Path) -> list[str]:
    """Return the names of unfinished downloads below a folder."""
    return [path.name for path in folder.rglob("*") if path.is_file() and path.name.startswith(download.PARTIAL)]


def test_a_file_is_fetched_once_with_progress(
    server: HubServer, row: PublishedWeights, weights: bytes, tmp_path: Path
) -> None:
    told: list[Event] = []
    path = fetch(row, told.append)
    assert path.read_bytes() == weights
    assert path.name == row.file
    assert told[0] == Message(f"Fetching {row.name} from 127.0.0.1: 1 MB, licence Apache-2.0.")
    assert told[-1] == Progress(f"fetch {row.name}, MB", 1, 1)
    assert fetch(row, ignore) == kept(row) == path
    assert len([path for path, _ in server.asked if path.endswith(row.file)]) == 1
    assert leftovers(tmp_path) == []


def test_a_broken_download_goes_on_where_it_stopped(server: HubServer, row: PublishedWeights, weights: bytes) -> None:
    server.faults = ["cut", "busy", "cut"]
    assert fetch(row, ignore).read_bytes() == weights
    ranges = [headers.get("Range") for path, headers in server.asked if path.endswith(row.file)]
    half, quarter = len(weights) // 2, (len(weights) - len(weights) // 2) // 2
    assert ranges == [None, f"bytes={half}-", f"bytes={half}-", f"bytes={half + quarter}-"]


def test_what_came_before_a_kill_need_not_come_again(
    server: HubServer, row: PublishedWeights, weights: bytes, tmp_path: Path
) -> None:
    server.faults = ["cut", *["busy"] * download.TRIES]
    assert "are kept for the next try" in refusal(row)
    assert leftovers(tmp_path)
    before = server.sent
    told: list[Event] = []
    assert fetch(row, told.append).read_bytes() == weights
    assert f"Going on with {row.name}" in str(told)
    assert server.sent - before <= len(weights) - len(weights) // 2 + len(b"{}")
    assert leftovers(tmp_path) == []


def test_all_bytes_that_only_lack_their_name_are_taken(server: HubServer, weights: bytes, tmp_path: Path) -> None:
    row = replace(PLAIN, address=f"{server.address}/files/")
    server.faults = ["cut", *["busy"] * download.TRIES]
    refusal(row)
    (partial,) = [path for path in tmp_path.rglob(f"{download.PARTIAL}*") if path.suffix == ".npz"]
    partial.write_bytes(weights)
    before = server.sent
    assert fetch(row, ignore).read_bytes() == weights
    assert server.sent == before


def test_a_server_without_ranges_sends_the_whole_again(
    server: HubServer, row: PublishedWeights, weights: bytes
) -> None:
    server.ranges = False
    server.faults = ["cut", "cut", "unmeasured"]
    assert fetch(row, ignore).read_bytes() == weights


def test_halves_of_two_versions_are_never_joined(
    server: HubServer, row: PublishedWeights, weights: bytes, tmp_path: Path
) -> None:
    server.faults = ["cut", *["busy"] * download.TRIES]
    refusal(row)
    newer = vitral.convert("vit-mu16", tmp_path / "newer.npz", format="original", image_size=64).path.read_bytes()
    server.files["ViT.npz"] = server.repositories["lab/vit"]["model.safetensors"] = newer
    assert fetch(row, ignore).read_bytes() == newer


def test_a_slow_server_is_waited_for(server: HubServer, row: PublishedWeights, weights: bytes) -> None:
    server.faults = ["slow"]
    assert fetch(row, ignore).read_bytes() == weights


def test_who_listens_can_give_up_a_download_of_less_than_a_megabyte_a_second(
    server: HubServer, row: PublishedWeights, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "REPORT_SECONDS", 0.0)
    server.faults = ["slow"]
    heard = []

    def impatient(event: Event) -> None:
        heard.append(event)
        if len([one for one in heard if isinstance(one, Progress)]) == 3:  # all of its first megabyte
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(row, impatient)
    assert all(one.done == 0 for one in heard if isinstance(one, Progress))


def test_a_false_hash_is_refused_and_nothing_is_kept(server: HubServer, row: PublishedWeights, tmp_path: Path) -> None:
    server.lies["model.safetensors"] = "0" * 64
    said = refusal(replace(row, sha256="00000000"))
    assert "begins with" in said
    assert "instead of 00000000" in said
    assert leftovers(tmp_path) == []
    assert server.sent > 0


def test_the_beginning_of_a_hash_is_compared_too(server: HubServer, row: PublishedWeights, weights: bytes) -> None:
    whole = hashlib.sha256(weights).hexdigest()
    assert fetch(replace(row, sha256=whole[:8].upper()), ignore).read_bytes() == weights


def test_another_file_in_the_repository_is_not_even_fetched(server: HubServer) -> None:
    said = refusal(replace(ON_HUB, sha256="ab" * 32))
    assert "instead of abababababab" in said
    assert "hf:lab/vit" in said
    assert server.sent == 0


def test_a_file_that_is_here_under_another_hash_is_not_taken(server: HubServer, weights: bytes) -> None:
    path = fetch(ON_HUB, ignore)
    assert kept(replace(ON_HUB, sha256=hashlib.sha256(weights).hexdigest().upper())) == path
    other = replace(ON_HUB, sha256="ab" * 32)
    assert kept(other) is None
    assert "instead of abababababab" in refusal(other)


def test_a_page_instead_of_weights_is_refused_and_not_kept(server: HubServer, weights: bytes) -> None:
    row = replace(PLAIN, address=f"{server.address}/files/")
    server.files["ViT.npz"] = b"<html>Please log in to this network</html>"
    assert "is not a weights file, and was deleted" in refusal(row)
    server.files["ViT.npz"] = weights
    assert fetch(row, ignore).read_bytes() == weights


def test_what_has_moved_is_followed_and_what_is_gone_is_said(
    server: HubServer, row: PublishedWeights, weights: bytes
) -> None:
    server.moved |= {"ViT.npz": f"{server.address}/files/new/ViT.npz"}
    server.files["new/ViT.npz"] = weights
    assert fetch(row, ignore).read_bytes() == weights
    assert "404" in refusal(replace(PLAIN, address=f"{server.address}/files/old/"))
    assert "has no other.safetensors (at main)" in refusal(replace(ON_HUB, file="other.safetensors"))
    assert "lab/nothing is not there, or is closed" in refusal(replace(ON_HUB, repository="lab/nothing"))


def test_a_gated_file_wants_a_token_and_the_token_stays_at_its_host(
    server: HubServer, weights: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.gated.add("lab/vit")
    said = refusal(ON_HUB)
    assert f"accept its licence at {server.address}/lab/vit" in said
    assert "hf auth login" in said
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    assert "gated" in refusal(ON_HUB)
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    # The content lies on another host, as it does behind the real Hub.
    server.moved["lab/vit/model.safetensors"] = f"http://localhost:{server.server_port}/files/ViT.npz"
    assert fetch(ON_HUB, ignore).read_bytes() == weights
    plain = [headers for path, headers in server.asked if path.startswith("/files/")]
    assert plain
    assert all("Authorization" not in headers for headers in plain)


def test_a_store_that_refuses_is_one_line_about_the_hub_that_was_asked(
    server: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.moved["lab/vit/model.safetensors"] = f"http://localhost:{server.server_port}/files/ViT.npz"
    server.closed.add("ViT.npz")
    said = refusal(ON_HUB)
    assert f"accept its licence at {server.address}/lab/vit" in said
    assert "hf auth login" in said
    assert "huggingface.co" not in said
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    said = refusal(ON_HUB)
    assert all(fact in said for fact in (f"{server.address}/lab/vit", "HF_TOKEN", "hf auth login", "refused")), said


def test_weights_whose_description_does_not_come_are_refused(
    server: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)  # the client's own tries
    server.busy.add("config.json")
    with pytest.raises(WeightsError, match=r"config\.json of vit-mu16@hub .*/lab/vit .*503") as refused:
        fetch(ON_HUB, ignore)
    assert "\n" not in str(refused.value)
    path = kept(ON_HUB)
    assert path is not None
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(WeightsError, match=r"config\.json of vit-mu16@hub is not on this machine"):
        fetch(ON_HUB, ignore)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    server.busy.clear()
    assert fetch(ON_HUB, ignore) == path
    assert (path.parent / "config.json").read_bytes() == b"{}"


def test_a_repository_without_a_description_is_taken_as_it_is(
    server: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    del server.repositories["lab/vit"]["config.json"]
    path = fetch(ON_HUB, ignore)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert fetch(ON_HUB, ignore) == path


@pytest.mark.parametrize("file", ["model.safetensors", "config.json"])
def test_a_server_cannot_choose_where_a_file_goes(server: HubServer, tmp_path: Path, file: str) -> None:
    server.lies[file] = "../../../escaped"
    with pytest.raises(WeightsError, match="its ETag there is '../../../escaped' instead of a hash"):
        fetch(ON_HUB, ignore)
    assert list(tmp_path.glob("escaped*")) == []
    assert file not in {path.rpartition("/")[2] for path, _ in server.asked}


def test_without_a_network_one_line_says_so(row: PublishedWeights, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = "http://127.0.0.1:9"
    monkeypatch.setattr(constants, "ENDPOINT", nowhere)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", f"{nowhere}/{{repo_id}}/{{revision}}/{{filename}}")
    assert "cannot be fetched from http://127.0.0.1:9/" in refusal(
        replace(row, address=f"{nowhere}/") if row.address else row
    )


def test_a_server_that_never_answers_is_asked_once(server: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def sleep(seconds: float) -> None:
        raise AssertionError(seconds)

    monkeypatch.setattr(time, "sleep", sleep)
    refusal(replace(PLAIN, address="http://127.0.0.1:9/"))


def test_offline_nothing_is_asked(
    server: HubServer, row: PublishedWeights, weights: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    said = refusal(row)
    assert said.endswith("is not on this machine, and fetching is switched off (by `offline=True` or HF_HUB_OFFLINE).")
    assert server.asked == []
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    path = fetch(row, ignore)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert fetch(row, ignore) == path


@pytest.mark.parametrize("written", [0.5, 1.0], ids=["half", "all but a byte"])
def test_a_full_disk_is_one_line_and_what_came_is_kept(
    server: HubServer, row: PublishedWeights, weights: bytes, written: float
) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(len(weights) * written) - 1, before[1]))
    try:
        with pytest.raises(StorageError, match="Cannot write '.*/(ViT.npz|blobs/[0-9a-f]+)': File too large"):
            fetch(row, ignore)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert kept(row) is None
    assert fetch(row, ignore).read_bytes() == weights


def test_a_disk_without_room_is_said_before_the_download(
    server: HubServer, row: PublishedWeights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    said = refusal(row)
    assert f"No room for {row.name}" in said
    assert "HF_HOME" in said
    assert leftovers(tmp_path) == []


def test_a_licence_is_named_before_anything_is_fetched(server: HubServer, row: PublishedWeights) -> None:
    told: list[Event] = []
    fetch(replace(row, licence="CC-BY-NC-4.0"), told.append)
    assert isinstance(told[0], Message)
    assert told[0].warning
    assert "does not allow use in products" in told[0].text
    assert "Fetching" in str(told[1])


CHILD = """
import sys
from vitral.weights.named.fetch import fetch
from vitral.weights.named.table import PublishedWeights
given = {"address": sys.argv[3], "repository": sys.argv[4]}
row = PublishedWeights("vit-mu16@x", "x", "Apache-2.0", sys.argv[1], sys.argv[2], 1, "x", **given)
print(fetch(row, lambda event: print(getattr(event, "text", event), flush=True)), flush=True)
"""


def start(row: PublishedWeights, **changes: str) -> subprocess.Popen[str]:
    """Fetch a row in a process of its own, which prints what it hears and then the path."""
    environment = {**os.environ, "HF_ENDPOINT": constants.ENDPOINT, "HF_HUB_CACHE": constants.HF_HUB_CACHE}
    environment |= {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    environment |= {"HF_HUB_DOWNLOAD_TIMEOUT": "600"}  # a busy machine needs a while to begin the second process
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        environment.pop(name, None)
    line = [sys.executable, "-c", CHILD, row.layout, row.file, row.address, row.repository]
    return subprocess.Popen(line, env=environment | changes, stdout=subprocess.PIPE, text=True)


def until(child: subprocess.Popen[str], said: str) -> None:
    """Read what a process says until a line begins so, or it ends."""
    assert child.stdout is not None
    while (line := child.stdout.readline()) and not line.startswith(said):
        pass


def test_two_processes_fetch_one_file_once(server: HubServer, row: PublishedWeights, weights: bytes) -> None:
    server.faults = ["held"]
    first = start(row)
    until(first, "Fetching")
    second = start(row)
    until(second, "Another process is fetching vit-mu16@x")
    until(second, "Progress")  # so that who listens can give the waiting up
    server.release.set()
    paths = {child.communicate()[0].splitlines()[-1] for child in (first, second)}
    assert [first.returncode, second.returncode] == [0, 0]
    (path,) = paths
    assert Path(path).read_bytes() == weights
    assert len([path for path, _ in server.asked if path.endswith(row.file)]) == 1


def test_a_killed_process_leaves_its_bytes_to_the_next(server: HubServer, weights: bytes, tmp_path: Path) -> None:
    server.faults = ["stalled"]
    child = start(ON_HUB)
    half = len(weights) // 2
    until(child, "Progress")
    child.kill()
    child.communicate()
    server.release.set()
    held = max(path.stat().st_size for path in tmp_path.rglob(f"{download.PARTIAL}*"))
    assert 0 < held <= half
    assert fetch(ON_HUB, ignore).read_bytes() == weights
    ranges = [headers.get("Range") for path, headers in server.asked if path.endswith(ON_HUB.file)]
    assert ranges == [None, f"bytes={held}-"]
    assert leftovers(tmp_path) == []


def test_a_proxy_is_asked_instead(server: HubServer, weights: bytes) -> None:
    nowhere = replace(PLAIN, address="http://weights.invalid/files/")
    out, _ = start(
        nowhere, HTTP_PROXY=server.address, http_proxy=server.address, NO_PROXY="", no_proxy=""
    ).communicate()
    assert Path(out.splitlines()[-1]).read_bytes() == weights
    assert server.asked[0][0] == "http://weights.invalid/files/ViT.npz"


def test_threads_of_one_process_fetch_one_file_once(server: HubServer, row: PublishedWeights, weights: bytes) -> None:
    server.faults = ["slow"]
    with ThreadPoolExecutor(3) as threads:
        paths = list(threads.map(lambda _: fetch(row, ignore), range(3)))
    assert len(set(paths)) == 1
    assert paths[0].read_bytes() == weights
    assert len([path for path, _ in server.asked if path.endswith(row.file)]) == 1


def test_an_error_while_waiting_or_fetching_frees_the_folder(
    server: HubServer, row: PublishedWeights, weights: bytes
) -> None:
    def impatient(event: Event) -> None:
        if isinstance(event, Progress):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(row, impatient)
    assert fetch(row, ignore).read_bytes() == weights
    with pytest.raises(WeightsError, match="There are no published weights"):
        vitral.load("vit-mu16@hub")
