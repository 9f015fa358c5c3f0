"""How long the default command's way through the package is: the files it enters before its first training step.

    python benchmarks/default_path.py [--data FOLDER] [--files]

`vitral finetune --data FOLDER --time 90s` runs in a process of its own under a profiler until training makes its first step,
then stops. FOLDER is generated where none is given: 300 small JPEG photos in three classes. No weights are fetched. A file and
a function count as entered when the function is called, except while a module is imported; lambdas and comprehensions belong to
their function. The second half of the figures is read from the syntax trees of the package. One line each; --files lists the
entered files as well.
"""

import argparse
import ast
import inspect
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType

import numpy as np
from PIL import Image

import vitral

PACKAGE = Path(vitral.__file__).parent
TRAINING = PACKAGE / "training"
FIRST_STEP = (str(TRAINING / "step.py"), "Step.__call__")  # file and function at which the trace ends
PHOTOS = 100  # of each class
CLASSES = 3
SIDE = 96  # pixels
SECONDS = 90
# What learns and scores, once all is planned; everything else in training plans, carries out and records.
LEARNING = frozenset(
    ("methods", "optimization", "settings", "scoring", "step", "loop", "stopping", "faults", "parallel", "__init__")
)
DOTS = 3  # of an attribute chain that counts as long
MOST_MODULES = 2  # of one name
TIME_WORDS = frozenset(("SECOND", "SECONDS", "MINUTE", "MINUTES", "SHARE", "SHARES", "LONGER", "BUDGET"))


class Trace:
    """Counts the calls of functions of the package until the first training step, then ends the process.

    Args:
        result: the JSON file that the counts go to.
    """

    def __init__(self, result: Path) -> None:
        self._result = result
        self._functions: Counter[CodeType] = Counter()
        self._last = ""
        self._changes = 0

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """Count a call, in whatever thread."""
        code = frame.f_code
        file = code.co_filename
        if event != "call" or not file.startswith(f"{PACKAGE}{os.sep}") or not is_function(code) or is_importing(frame):
            return
        self._functions[code] += 1
        self._changes += file != self._last
        self._last = file
        if (file, code.co_qualname) == FIRST_STEP:
            self._finish()

    def _finish(self) -> None:
        sys.setprofile(None)
        files = sorted({code.co_filename for code in self._functions})
        figures = {
            "files": [str(Path(file).relative_to(PACKAGE.parent)) for file in files],
            "functions": len(self._functions),
            "calls": self._functions.total(),
            "changes": self._changes,
            "loaded": sorted(name for name in sys.modules if name.split(".")[0] == PACKAGE.name),
        }
        self._result.write_text(json.dumps(figures))
        os._exit(0)


def is_function(code: CodeType) -> bool:
    """Tell whether code is that of a function with a name, which a module, class, lambda or comprehension is not."""
    return bool(code.co_flags & inspect.CO_OPTIMIZED) and not code.co_name.startswith("<")


def is_importing(frame: FrameType | None) -> bool:
    """Tell whether a frame runs because a module of the package is being imported."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(f"{PACKAGE}{os.sep}"):
            return True
        frame = frame.f_back
    return False


def trace_command(result: Path, arguments: list[str]) -> None:
    """Run a command of ours under the profiler; it ends with the first step."""
    from vitral.__main__ import main as run

    trace = Trace(result)
    sys.argv = ["vitral", *arguments]
    threading.setprofile(trace)
    sys.setprofile(trace)
    status = run()
    sys.setprofile(None)
    raise SystemExit(f"The command ended with status {status} before a first training step.")


def make_photos(folder: Path) -> None:
    """Write noisy colour gradients, a hue to a class, as JPEG files in class folders."""
    generator = np.random.default_rng(0)
    ramp = np.linspace(0, 80, SIDE)
    for label in range(CLASSES):
        (folder / f"class{label}").mkdir(parents=True)
        for number in range(PHOTOS):
            pixels = generator.normal(90, 30, (SIDE, SIDE, 3))
            pixels[..., label] += ramp * generator.uniform(0.2, 1.0)
            image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
            image.save(folder / f"class{label}" / f"{number}.jpg")


def traced(data: Path | None) -> dict[str, list[str] | int]:
    """Return what the default command entered, from a process of its own.

    Raises:
        SystemExit: the command ended before it trained.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folder, result = Path(temporary), Path(temporary) / "trace.json"
        if data is None:
            data = folder / "photos"
            make_photos(data)
        command = ["finetune", "--data", str(data.resolve()), "--time", f"{SECONDS}s"]
        done = subprocess.run(
            [sys.executable, str(Path(__file__).resolve()), "--traced", str(result), *command],
            cwd=folder,
            env={**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(PACKAGE.parent)},
            capture_output=True,
            text=True,
        )
        if not result.is_file():
            raise SystemExit(f"The trace failed: {done.stderr[-2000:]}")
        figures: dict[str, list[str] | int] = json.loads(result.read_text())
        return figures


def trees(folder: Path) -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text()) for path in sorted(folder.rglob("*.py"))}


def lines(files: Iterator[Path] | list[Path]) -> int:
    return sum(path.read_text().count("\n") for path in files)


def chains(tree: ast.AST) -> Iterator[str]:
    """Give every attribute chain of three dots and more that begins with a name, each once, at its full length."""
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or id(node) in inner:
            continue
        dots, value = 0, node
        while isinstance(value, ast.Attribute):
            dots, value = dots + 1, value.value  # type: ignore[assignment]
        if dots >= DOTS and isinstance(value, ast.Name):
            yield ast.unparse(node)


def is_planning(path: Path) -> bool:
    """Tell whether a file of training plans, carries out or records, rather than learns or scores."""
    return path.relative_to(TRAINING).with_suffix("").parts[0] not in LEARNING


def families(files: dict[Path, ast.Module]) -> set[str]:
    """Return the names of the classes of the networks and their configs, from the table in models/families.py."""
    table = next(tree for path, tree in files.items() if path == PACKAGE / "models" / "families.py")
    calls = (node for node in ast.walk(table) if isinstance(node, ast.Call) and ast.unparse(node.func) == "Family")
    return {argument.id for call in calls for argument in call.args if isinstance(argument, ast.Name)}


def family_checks(tree: ast.AST, names: set[str]) -> Iterator[str]:
    """Give every isinstance check of a network's family."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
            checked = {part.id for part in ast.walk(node.args[1]) if isinstance(part, ast.Name)}
            if checked & names:
                yield ast.unparse(node)


def constants(tree: ast.Module) -> Iterator[tuple[list[str], ast.expr]]:
    """Give the names and the value of every assignment at the level of a module to names in capitals."""
    for node in tree.body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]
        if names and all(name.isupper() for name in names):
            yield names, node.value


def is_packed(names: list[str]) -> bool:
    return len(names) > 1


def is_of_time(names: list[str], value: ast.expr) -> bool:
    """Tell whether a constant is a number of seconds or minutes, or a share."""
    numeric = any(isinstance(part, ast.Constant) and isinstance(part.value, int | float) for part in ast.walk(value))
    return numeric and any(TIME_WORDS & set(name.split("_")) for name in names)


def print_trace(figures: dict[str, list[str] | int], *, show_files: bool) -> None:
    files, loaded = figures["files"], figures["loaded"]
    assert isinstance(files, list)
    assert isinstance(loaded, list)
    entered = lines([PACKAGE.parent / name for name in files])
    print(f"files entered before the first step: {len(files)} ({entered:,} lines)")
    print(f"functions entered: {figures['functions']:,}, in {figures['calls']:,} calls")
    print(f"changes of file between consecutive calls: {figures['changes']:,}")
    print(f"modules of ours loaded: {len(loaded)}")
    for name in files if show_files else ():
        print(f"  {name}")


def print_shape() -> None:
    """Print what the syntax trees say."""
    files = trees(PACKAGE)
    training = {path: tree for path, tree in files.items() if path.is_relative_to(TRAINING)}
    in_package, in_training = (sum(len(list(chains(tree))) for tree in part.values()) for part in (files, training))
    print(f"attribute chains of {DOTS} dots and more: {in_package}, in training {in_training}")
    classes = Counter(node.name for tree in files.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    print(f"class names that occur twice: {more_than(classes, 1)}")
    modules = Counter(path.stem for path in files if path.stem != "__init__")
    print(f"module names more than {MOST_MODULES} times: {more_than(modules, MOST_MODULES)}")
    outside = {path: tree for path, tree in files.items() if not path.is_relative_to(PACKAGE / "models")}
    names = families(files)
    print(
        f"isinstance checks of a network's family outside models: "
        f"{sum(len(list(family_checks(tree, names))) for tree in outside.values())}"
    )
    packed = sum(is_packed(names) for tree in files.values() for names, _ in constants(tree))
    print(f"packed constants: {packed}")
    timed = {path: names for path, tree in training.items() if (names := times(tree))}
    print(
        f"files of training with constants of time or shares: {len(timed)} ({sum(map(len, timed.values()))} constants)"
    )
    print(f"lines of vitral: {lines(list(files)):,}")
    planning = [path for path in training if is_planning(path)]
    print(f"lines of training without {', '.join(sorted(LEARNING - {'__init__'}))}: {lines(planning):,}")


def times(tree: ast.Module) -> list[str]:
    """Return the names of a module's constants of time and shares."""
    return [name for names, value in constants(tree) if is_of_time(names, value) for name in names]


def more_than(counts: Counter[str], most: int) -> str:
    """Return how many names occur more often than allowed, and which."""
    found = sorted(name for name, count in counts.items() if count > most)
    return f"{len(found)}" + (f" ({', '.join(f'{name} {counts[name]}' for name in found)})" if found else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--files", action="store_true")
    parser.add_argument("--traced", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.traced:
        result, *command = arguments.traced
        trace_command(Path(result), command)
    print_trace(traced(arguments.data), show_files=arguments.files)
    print_shape()


if __name__ == "__main__":
    main()
