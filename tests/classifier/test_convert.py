"""Converting a classifier: whatever the format, nothing that belongs to it is lost."""

import os
from pathlib import Path

import pytest

import vitral

FORMATS = {
    "vitral": "folder",
    "transformers": "theirs",
    "original": "one.npz",
    "timm": "one.safetensors",
}


@pytest.mark.parametrize("format_name", FORMATS)
def test_files_have_the_mode_that_the_umask_says(format_name: str, tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        written = vitral.convert("vit-mu16", tmp_path / FORMATS[format_name], format=format_name, image_size=32)
    finally:
        os.umask(before)
    files = [written.path] if written.path.is_file() else list(written.path.iterdir())
    assert {path.stat().st_mode & 0o777 for path in files} == {0o640}
