"""Peak memory of a ViT-L/16 training step at batch 8 (bf16, AdamW), Vitral's against timm's, each in a process of its own.

python benchmarks/train_memory.py [--model vit-l16 --timm vit_large_patch16_224 --batch 8]
"""

import argparse
import multiprocessing
import resource
import sys
from importlib import metadata
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from train_speed import Case, Way, timm_step, vitral_step

STEPS = 3


def measure(library: str, case: Case, connection: Connection) -> None:
    """Make some steps and send the process's greatest resident memory, bytes."""
    way = Way(library, "bf16")
    step = timm_step(case, way) if library == "timm" else vitral_step(case, way)
    for _ in range(STEPS):
        step()
    connection.send(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def main() -> None:
    """Measure both and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="vit-l16")
    parser.add_argument("--timm", default="vit_large_patch16_224")
    parser.add_argument("--batch", type=int, default=8)
    options = parser.parse_args()
    case = Case(options.model, options.model, options.timm, {}, 224, options.batch, 1000, 1.0)
    context = multiprocessing.get_context("spawn")
    peaks = {}
    for library in ("timm", "vitral"):
        ours, theirs = context.Pipe()
        process = context.Process(target=measure, args=(library, case, theirs))
        process.start()
        peaks[library] = ours.recv()
        process.join()
        print(f"{library} {metadata.version(library)}: {peaks[library] / 2**30:.2f} GiB", flush=True)
    print(
        f"{options.model}, batch {options.batch}: Vitral takes {peaks['vitral'] / peaks['timm']:.2f} times timm's memory"
    )


if __name__ == "__main__":
    main()
