"""What the tests of sources share."""

from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from vitral.data import shards as shards_module


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[fsspec.AbstractFileSystem]:
    """A file system that is not this machine's, reached by address."""
    monkeypatch.setattr(shards_module, "CACHE", tmp_path / "cache")
    filesystem = fsspec.filesystem("memory")
    yield filesystem
    filesystem.store.clear()
    filesystem.pseudo_dirs[:] = [""]
