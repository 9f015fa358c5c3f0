"""Mutate the rooms whose faults no crash betrays: `python -m tests.mutation [ROOM ...]`, all of them by default.

mutmut changes one expression of a function at a time, in a copy of the repository, and runs the room's tests on it. Of a module
with many mutants a sample is drawn, the same in every run. The results are written to tests/mutation/results/, and
docs/mutation.md from them and from answers.toml, which says of each survivor why it makes no difference; a survivor without an
answer fails the run, and so do too few killed.
"""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from tests.mutation.document import ENOUGH, Mutant, document, share_killed

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
SAMPLE, SEED = 60, 0  # mutants of one module
KILLED = ("killed", "timeout", "segfault", "suspicious")
MUTMUT = str(Path(sys.executable).with_name("mutmut"))
CONFIG = """
[tool.mutmut]
source_paths = ["vitral"]
only_mutate = {modules}
also_copy = ["benchmarks", "docs", "packages", "README.md", "CHANGELOG.md"]
process_isolation = "forkserver"  # torch's autograd does not outlive a fork
track_dependencies = false
use_git_change_detection = false
timeout_multiplier = 2.0
timeout_constant = 30.0  # seconds, twice: a busy machine must not pass for an endless loop
pytest_add_cli_args = ["-k", {chosen}, "-p", "no:unraisableexception"]  # which collects garbage, two thirds of the time
pytest_add_cli_args_test_selection = {tests}
"""
NAMES = (
    "import sys; from mutmut.mutation.file_mutation import mutate_file_contents as mutate; "
    "print(*mutate(sys.argv[1], open(sys.argv[1], encoding='utf-8').read()).mutant_names, sep='\\n')"
)


def copy_tree(target: Path) -> None:
    """Copy what belongs to the repository, files that are not committed yet as well."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target / name)


def names_of(module: str, tree: Path) -> list[str]:
    """Return the names of all mutants of a module."""
    made = subprocess.run([sys.executable, "-c", NAMES, module], cwd=tree, check=True, capture_output=True, text=True)
    return [f"{module.removesuffix('.py').replace('/', '.')}.{name}" for name in made.stdout.split()]


def mutate_room(room: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return by module how many mutants there are, how many were run and killed, and those that survived."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        copy_tree(tree)
        modules, tests, chosen = (json.dumps(room.get(key, "")) for key in ("modules", "tests", "chosen"))
        config = CONFIG.format(modules=modules, tests=tests, chosen=chosen)
        with (tree / "pyproject.toml").open("a", encoding="utf-8") as file:
            file.write(config)
        all_names = {module: names_of(module, tree) for module in room["modules"]}
        drawn = {module: sample(names, room.get("sample", SAMPLE)) for module, names in all_names.items()}
        names = [name for part in drawn.values() for name in part]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        environment.pop("PYTHONPATH", None)  # or the tests would import what is not mutated
        run = [MUTMUT, "run", "--max-children", os.environ.get("MUTATION_PROCESSES", "1"), *names]
        subprocess.run(run, cwd=tree, check=True, env=environment)
        statuses = statuses_of(tree)
        return {
            module: {
                "mutants": len(all_names[module]),
                "run": len(part),
                "killed": sum(statuses[name] in KILLED for name in part),
                "survived": [survivor(name, tree) for name in part if statuses[name] not in KILLED],
            }
            for module, part in drawn.items()
        }


def sample(names: list[str], size: int) -> list[str]:
    """Return all of a few names, and some of many."""
    return names if len(names) <= size else sorted(random.Random(SEED).sample(names, size))


def statuses_of(tree: Path) -> dict[str, str]:
    """Return what became of each mutant."""
    shown = subprocess.run([MUTMUT, "results", "--all", "true"], cwd=tree, check=True, capture_output=True, text=True)
    return dict(line.strip().rsplit(": ", 1) for line in shown.stdout.splitlines() if ": " in line)


def survivor(name: str, tree: Path) -> Mutant:
    """Return a mutant with the lines that it changes."""
    shown = subprocess.run([MUTMUT, "show", name], cwd=tree, check=True, capture_output=True, text=True).stdout
    changed = [line for line in shown.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    return {
        "function": name.rsplit(".", 1)[1]
        .rsplit("__mutmut_", 1)[0]
        .removeprefix("x_")
        .replace("xǁ", "")
        .replace("ǁ", "."),
        "before": " ".join(line[1:].strip() for line in changed if line[0] == "-"),
        "after": " ".join(line[1:].strip() for line in changed if line[0] == "+"),
    }


def main(asked: list[str]) -> int:
    """Run the rooms that are asked for, write what came of it, and return 1 if that is not enough."""
    rooms = tomllib.loads((HERE / "rooms.toml").read_text(encoding="utf-8"))
    for name in asked or rooms:
        found = json.dumps(mutate_room(rooms[name]), indent=1, ensure_ascii=False)
        (HERE / "results").mkdir(exist_ok=True)
        (HERE / "results" / f"{name}.json").write_text(found + "\n", encoding="utf-8")
    results = {
        name: json.loads(path.read_text(encoding="utf-8"))
        for name in rooms
        if (path := HERE / "results" / f"{name}.json").exists()
    }
    answers = tomllib.loads((HERE / "answers.toml").read_text(encoding="utf-8")).get("answer", [])
    text, unanswered = document(results, answers)
    (ROOT / "docs" / "mutation.md").write_text(text, encoding="utf-8")
    killed = share_killed(results)
    print(f"{killed:.1%} killed, {unanswered} survivors without an answer: docs/mutation.md")
    return int(killed < ENOUGH or unanswered > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
