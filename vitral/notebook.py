"""How results are shown in a notebook: a small table, an image, a line, a card of an answer; every text escaped."""

import base64
import html
import math
from collections.abc import Sequence

from vitral.advice import printable

MOST_POINTS = 120  # of a curve
WIDTH = 240  # pixels of a curve
HEIGHT = 48
SIDE = 160  # pixels of a card's image
BAR = "#4a86bd"  # stands out on white and on black
TABLE = "border-collapse: collapse; text-align: left; font-size: 13px"
CELL = "padding: 2px 14px 2px 0; text-align: left; vertical-align: top"


def table(title: str, rows: Sequence[tuple[str, str]], *, below: str = "") -> str:
    """Return a table as HTML, every text escaped.

    Args:
        title: The title above the table.
        rows: The name and the value of each row; a row without a value is left out.
        below: Trusted HTML below it, such as `image` and `curve` return.
    """
    cells = "".join(
        f'<tr><th style="{CELL}">{_escaped(name)}</th><td style="{CELL}">{_escaped(value)}</td></tr>'
        for name, value in rows
        if value
    )
    return f'<div><b>{_escaped(title)}</b><table style="{TABLE}"><tbody>{cells}</tbody></table>{below}</div>'


def card(title: str, shares: Sequence[tuple[str, float]], *, image: str = "", notes: Sequence[str] = ()) -> str:
    """Return an image beside names with a bar each, as HTML, every text escaped.

    Args:
        title: The title above the bars.
        shares: Names with their shares, 0 to 1; the first is set in bold.
        image: Trusted HTML of the image, as `image` returns; empty for none.
        notes: Lines below the bars.
    """
    rows = "".join(_bar(name, share, first=not index) for index, (name, share) in enumerate(shares))
    below = "".join(f"<div>{_escaped(note)}</div>" for note in notes)
    shown = f'<div style="flex: none; max-width: {SIDE}px">{image}</div>' if image else ""
    bars = f'<div><div>{_escaped(title)}</div><table style="{TABLE}"><tbody>{rows}</tbody></table>{below}</div>'
    return f'<div style="display: flex; gap: 16px; align-items: flex-start; font-size: 13px">{shown}{bars}</div>'


def _bar(name: str, share: float, *, first: bool) -> str:
    label = f"<b>{_escaped(name)}</b>" if first else _escaped(name)
    bar = f'<div style="width: {100 * share:.1f}%; min-width: 1px; height: 10px; background: {BAR}"></div>'
    cells = f'<td style="{CELL}; width: 160px; vertical-align: middle">{bar}</td><td style="{CELL}">{share:.1%}</td>'
    return f'<tr><th style="{CELL}; font-weight: normal">{label}</th>{cells}</tr>'


def image(jpeg: bytes, description: str) -> str:
    """Return an encoded JPEG as a self-contained HTML image."""
    data = base64.b64encode(jpeg).decode()
    return (
        f'<img src="data:image/jpeg;base64,{data}" alt="{html.escape(printable(description))}" style="max-width: 100%">'
    )


def curve(values: Sequence[float], description: str) -> str:
    """Return numbers as a small line plot, from left to right; nothing where fewer than two are finite."""
    finite = [value for value in values if math.isfinite(value)]
    if len(finite) < 2:
        return ""
    finite = finite[:: math.ceil(len(finite) / MOST_POINTS)]
    low, spread = min(finite), (max(finite) - min(finite)) or 1.0
    step = WIDTH / max(len(finite) - 1, 1)
    points = " ".join(
        f"{index * step:.1f},{HEIGHT - 2 - (value - low) / spread * (HEIGHT - 4):.1f}"
        for index, value in enumerate(finite)
    )
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{html.escape(printable(description))}">'
        f'<polyline points="{points}" fill="none" stroke="#2c6393" stroke-width="1.5"/></svg>'
        f"<div>{_escaped(description)}</div>"
    )


def _escaped(text: str) -> str:
    """Return a text as HTML, isolated so that a right-to-left name reverses nothing but itself."""
    plain = html.escape(printable(text))
    return plain if plain.isascii() else f"<bdi>{plain}</bdi>"
