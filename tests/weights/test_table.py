"""The table of published weights beside its page in the documentation, and beside the places that it names."""

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from huggingface_hub import HfApi, constants
from huggingface_hub.utils import get_session  # type: ignore[attr-defined]

from tests.weights.write_table import DOCS, page
from vitral.weights.named.table import MEGABYTE, PublishedWeights, rows

NEAR = 0.12  # of the size, by which a computed one may differ: headers, counters, a head more or less
AT_ONCE = 8  # requests
HUB = [row for row in rows().values() if row.repository]


def test_the_page_is_written_from_the_table() -> None:
    assert DOCS.read_text() == page(), "run python -m tests.weights.write_table"


@pytest.fixture
def online(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test use a real network."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)


def differences(row: PublishedWeights, listed: dict[str, Any]) -> list[str]:
    """Return how a repository's files differ from a row, in the terms of the client's listing."""
    file = listed.get(row.file)
    if file is None:
        return [f"{row.name}: no {row.file} in {row.repository}, only {sorted(listed)}"]
    found = []
    if abs(file.size / MEGABYTE - row.megabytes) > NEAR * row.megabytes + 1:
        found.append(f"{row.name}: {file.size} bytes instead of {row.megabytes} MB")
    if file.lfs is not None and not file.lfs.sha256.startswith(row.sha256):
        found.append(f"{row.name}: SHA-256 {file.lfs.sha256} instead of {row.sha256}")
    return found


def test_a_repository_that_differs_is_noticed() -> None:
    row = rows()["vit-s16@augreg-in21k-ft-in1k"]
    right = SimpleNamespace(size=88_216_496, lfs=SimpleNamespace(sha256=row.sha256))
    assert differences(row, {row.file: right}) == []
    assert "no model.safetensors" in differences(row, {"other": right})[0]
    assert "bytes instead of 88 MB" in differences(row, {row.file: SimpleNamespace(size=10, lfs=right.lfs)})[0]
    assert (
        "SHA-256 ff"
        in differences(row, {row.file: SimpleNamespace(size=88_216_496, lfs=SimpleNamespace(sha256="ff"))})[0]
    )


def skip_loudly(what: str, error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    reason = f"NOT CHECKED, for no network answers: {what} ({type(error).__name__})"
    with capsys.disabled():
        print(f"\n{reason}")
    pytest.skip(reason)


@pytest.mark.usefixtures("online")
def test_the_hub_has_what_the_table_says(capsys: pytest.CaptureFixture[str]) -> None:
    def look(row: PublishedWeights) -> list[str]:
        info = HfApi().model_info(row.repository, revision=row.revision, files_metadata=True, timeout=30)
        return differences(row, {file.rfilename: file for file in info.siblings or ()})

    try:
        HfApi().model_info(HUB[0].repository, timeout=10)
    except Exception as error:  # whatever keeps the first answer from coming
        skip_loudly(f"{len(HUB)} rows of files on the Hub", error, capsys)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        assert [difference for found in pool.map(look, HUB) for difference in found] == []


@pytest.mark.usefixtures("online")
def test_the_authors_servers_have_what_the_table_says(capsys: pytest.CaptureFixture[str]) -> None:
    listed = [row for row in rows().values() if row.address]

    def look(row: PublishedWeights) -> str:
        answer = get_session().head(row.link, follow_redirects=True, timeout=30)
        size = int(answer.headers.get("Content-Length", 0)) / MEGABYTE
        near = abs(size - row.megabytes) <= NEAR * row.megabytes + 1
        return "" if answer.status_code == 200 and near else f"{row.name}: {answer.status_code}, {size:.0f} MB"

    try:
        get_session().head(listed[0].link, follow_redirects=True, timeout=10)
    except Exception as error:  # whatever keeps the first answer from coming
        skip_loudly(f"{len(listed)} rows of files at their authors' addresses", error, capsys)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        assert [difference for difference in pool.map(look, listed) if difference] == []
