"""What a file is that is no readable image, as far as its first bytes say, and what is to be done."""

import contextlib
from pathlib import Path

from vitral.images import tiff

LOOKED_AT = 512  # bytes
WEB_PAGE = "a web page, as downloads that fail leave it; download the image again"
OTHER_TIFF = "a TIFF of a kind that is not read; save it as grey or colours of 8 or 16 bits a value"


def what_it_is(source: object) -> str:
    """Return what a file or its bytes are, and advice; empty where the first bytes do not tell."""
    start = source[:LOOKED_AT] if isinstance(source, bytes) else b""
    if isinstance(source, str | Path):
        with contextlib.suppress(OSError), open(source, "rb") as file:
            start = file.read(LOOKED_AT)
    text = start.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith((b"<!doctype html", b"<html")):
        return WEB_PAGE
    return OTHER_TIFF if start.startswith(tiff.MAGIC) else ""
