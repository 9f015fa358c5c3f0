"""Draw the house from its imports: python docs/house.py writes docs/images/house.svg.

Floors are those of the import contract in pyproject.toml, rooms as wide as their code is long; a line goes from a room to each
room that it imports from, unless another of its imports leads there anyway. Every room may stand on the modules below.
"""

import tomllib
from pathlib import Path

import grimp
import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

ROOT = Path(__file__).parent.parent
TARGET = ROOT / "docs" / "images" / "house.svg"
WIDTH, HEIGHT, GAP, BETWEEN = 100.0, 5.0, 3.0, 3.0
LETTER, LEAST = 1.15, 13.0  # widths: of a letter of a name, of a room
A_ROW = 7  # modules of the ground floor in a row
COLOURS = pyplot.get_cmap("tab20").colors  # type: ignore[attr-defined]


def floors() -> list[list[str]]:
    """Return the rooms of each floor, the top one first."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    contract = next(contract for contract in settings if contract["type"] == "layers")
    return [[room.strip() for room in layer.split("|")] for layer in contract["layers"]]


def lines_of(room: str) -> tuple[int, int]:
    """Return how many files a room has, and how many lines."""
    folder = ROOT / "vitral" / room
    files = sorted(folder.rglob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]
    return len(files), sum(file.read_text().count("\n") for file in files)


def needs(rooms: list[str]) -> dict[str, set[str]]:
    """Return from which rooms each imports."""
    graph = grimp.build_graph("vitral", cache_dir=None)
    return {
        room: {
            other
            for other in rooms
            if other != room
            and graph.direct_import_exists(importer=f"vitral.{room}", imported=f"vitral.{other}", as_packages=True)
        }
        for room in rooms
    }


def reduced(direct: dict[str, set[str]]) -> list[tuple[str, str]]:
    """Return the imports that no chain of other imports stands for."""

    def reach(room: str) -> set[str]:
        return direct[room].union(*(reach(other) for other in direct[room]))

    return [
        (room, other)
        for room in direct
        for other in sorted(direct[room])  # as sets are in another order in every process
        if not any(other in reach(via) for via in direct[room])
    ]


def draw(axes: Axes) -> None:
    """Draw floors, rooms and imports; what all rooms stand on is drawn without its lines."""
    storeys = floors()
    upper = [rooms for rooms in storeys if all((ROOT / "vitral" / room).is_dir() for room in rooms)]
    ground = [module for rooms in storeys if rooms not in upper for module in rooms]
    below = [ground[start : start + A_ROW] for start in range(0, len(ground), A_ROW)]
    middles: dict[str, tuple[float, float]] = {}
    for level, rooms in enumerate(reversed([*upper, *below])):
        sizes = {room: lines_of(room) for room in rooms}
        widths = {
            room: max(len(room) * LETTER + 2, LEAST if sizes[room][0] > 1 else 0, (sizes[room][1] / 50) ** 0.7)
            for room in rooms
        }
        left = (WIDTH - sum(widths.values()) - BETWEEN * (len(rooms) - 1)) / 2
        for room in rooms:
            middles[room] = (left + widths[room] / 2, level * (HEIGHT + GAP))
            draw_room(axes, room, left, level, widths[room], sizes[room])
            left += widths[room] + BETWEEN
    for room, other in reduced(needs([room for rooms in upper for room in rooms])):
        (x0, y0), (x1, y1) = middles[room], middles[other]
        how = {"arrowstyle": "-|>", "color": "0.45", "lw": 0.9, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", (x1, y1 + HEIGHT), (x0, y0), arrowprops=how, zorder=1)
    axes.set_xlim(-1, WIDTH + 1)
    axes.set_ylim(-1, (len(upper) + len(below)) * (HEIGHT + GAP) - GAP + 1)
    axes.axis("off")


def draw_room(axes: Axes, room: str, left: float, level: int, width: float, size: tuple[int, int]) -> None:
    """Draw one room with its name and its size."""
    bottom, (files, lines) = level * (HEIGHT + GAP), size
    pale = tuple(1 - 0.25 * (1 - part) for part in COLOURS[level % len(COLOURS)][:3])
    box = FancyBboxPatch((left, bottom), width, HEIGHT, "round,pad=0,rounding_size=0.6", fc=pale, ec="0.4", zorder=2)
    axes.add_patch(box)
    middle = left + width / 2
    about = f"{float(f'{lines:.2g}'):,.0f} lines"  # so that not every change draws another house
    told = about if files == 1 else f"{files} files, {about}"
    text = {"ha": "center", "va": "center", "zorder": 3}
    axes.text(middle, bottom + HEIGHT * 0.64, room, fontsize=11, weight="bold", **text)
    axes.text(middle, bottom + HEIGHT * 0.26, told, fontsize=7.5, color="0.25", **text)


def main() -> None:
    """Write the drawing, the same bytes for the same imports."""
    matplotlib.rcParams.update({"svg.hashsalt": "vitral", "svg.fonttype": "none", "font.family": "sans-serif"})
    figure, axes = pyplot.subplots(figsize=(11, 10), layout="constrained")
    draw(axes)
    figure.savefig(TARGET, metadata={"Date": None})
    print(f"The house is drawn in {TARGET.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
