"""Load ViT-L/16 from an .npz of the original: time over that of reading the file, extra memory over its size.

    python benchmarks/load_weights.py [--variant vit-l16] [--rounds 3]

Each round is a process of its own; the file (1.2 GB for L/16) is drawn at random in a temporary folder. Reading means
`numpy.load` of every array, the least that any loader does.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

READ = """
import json, sys, time, numpy as np
start = time.perf_counter()
with np.load(sys.argv[1]) as arrays:
    kept = [arrays[name] for name in arrays]
print(json.dumps({"seconds": time.perf_counter() - start}))
"""
LOAD = """
import json, sys, time
from pathlib import Path
import vitral, vitral.weights.load
def memory(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))
vitral.load("vit-mu16")  # the imports and their memory are not the file's
before = memory("VmRSS")
start = time.perf_counter()
kept = vitral.load(sys.argv[1])
print(json.dumps({"seconds": time.perf_counter() - start, "extra": memory("VmHWM") - before}))
"""


def run(script: str, path: Path) -> dict[str, float]:
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--variant", default="vit-l16")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "weights.npz"
        make = "import sys, vitral; vitral.convert(sys.argv[1], sys.argv[2], format='original')"
        subprocess.run([sys.executable, "-c", make, arguments.variant, str(path)], check=True)
        size = path.stat().st_size
        run(READ, path)  # brings the file into the page cache for both
        rounds = [(run(READ, path), run(LOAD, path)) for _ in range(arguments.rounds)]
    read = statistics.median(one["seconds"] for one, _ in rounds)
    load = statistics.median(other["seconds"] for _, other in rounds)
    extra = max(other["extra"] for _, other in rounds)
    print(f"{arguments.variant}, {size / 1e6:.0f} MB: numpy reads it in {read:.2f} s")
    print(f"vitral.load: {load:.2f} s, {load / read:.2f} times that")
    print(f"extra memory at the peak: {extra / 1e6:.0f} MB, {extra / size:.2f} of the file")


if __name__ == "__main__":
    main()
