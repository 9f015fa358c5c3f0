"""Fuzz for as long as is asked: `python -m tests.fuzz [SECONDS] [FOLDER]`; for an hour, with findings/ for what broke."""

import hashlib
import random
import sys
import time
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz.rule import Runner, play, running
from tests.fuzz.scene import Scene, read_scene
from tests.fuzz.strategies import scenes

BLOCK = 100  # scenes drawn from one seed
ALONE = 50  # one in so many is played in a process of its own


def draw(number: int) -> list[Scene]:
    """Return the scenes of a seed."""
    found: list[Scene] = []

    @seed(number)
    @settings(
        max_examples=BLOCK,
        deadline=None,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(scene=scenes())
    def collect(scene: Scene) -> None:
        found.append(scene)

    collect()
    return found


def main(seconds: float, folder: Path) -> int:
    """Play the corpus and then drawn scenes until the time is up; print the counts, and return 1 if anything broke."""
    counts: Counter[str] = Counter()
    start = time.monotonic()
    corpus = [read_scene(path) for path in sorted((Path(__file__).parent / "corpus").glob("*.toml"))]
    first = random.SystemRandom().randrange(1 << 30)
    print(f"seed {first}, {len(corpus)} scenes in the corpus", flush=True)
    with running() as runner:
        for scene in corpus:
            _count(scene, runner, counts, folder)
        block = first
        while time.monotonic() - start < seconds:
            for scene in draw(block):
                if time.monotonic() - start >= seconds:
                    break
                _count(scene, runner, counts, folder)
            block += 1
    print(
        f"{time.monotonic() - start:.0f} s: " + ", ".join(f"{what} {count:,}" for what, count in sorted(counts.items()))
    )
    return 1 if counts["broken"] else 0


def _count(scene: Scene, runner: Runner, counts: Counter[str], folder: Path) -> None:
    counts["scenes"] += 1
    alone = counts["scenes"] % ALONE == 0
    counts["in processes of their own"] += alone
    broken, ends = play(scene, runner, alone=alone)
    counts["commands"] += len(ends)
    counts.update(f"status {ended.status}" for ended in ends)
    counts["broken"] += bool(broken)
    if broken:
        text = scene.to_toml()
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{scene.name or hashlib.sha256(text.encode()).hexdigest()[:12]}.toml"
        path.write_text(text, encoding="utf-8")
        print(f"{path}: {broken[0]}", flush=True)


if __name__ == "__main__":
    length = float(sys.argv[1]) if len(sys.argv) > 1 else 3600.0
    sys.exit(main(length, Path(sys.argv[2] if len(sys.argv) > 2 else "findings")))
