"""How many generated pictures one core draws a second, by process time: other work on the machine does not count.

    OMP_NUM_THREADS=1 taskset -c 0 python benchmarks/generated_speed.py [--pictures 512]

Three figures a preset: drawing alone, on its own canvas and on a smaller one, and whole training batches (random crop,
resize, stack).
"""

import argparse
import time
from collections.abc import Callable

import cv2

from vitral.data.generated import PRESETS, Preset, open_generated, render
from vitral.data.loader import TrainingBatches

BATCH = 64
TARGET = 250.0  # pictures a second at 224 pixels


def rate(draw: Callable[[], None], pictures: int) -> float:
    """Return pictures a second of processor time."""
    start = time.process_time()
    draw()
    return pictures / (time.process_time() - start)


def drawing(preset: Preset, canvas: int, pictures: int) -> float:
    """Return the speed of drawing alone; the pictures run through the classes, so cheap and dear ones mix."""

    def draw() -> None:
        for index in range(pictures):
            render(preset.ranges, 0, index % preset.num_classes, index, canvas)

    return rate(draw, pictures)


def pipeline(name: str, side: int, pictures: int) -> float:
    """Return the speed of whole training batches at `side` pixels."""
    data = open_generated(name)
    batches = TrainingBatches(
        data.splits["train"], batch_size=BATCH, image_size=(side, side), augmentation=data.augmentation, seed=0
    )

    def draw() -> None:
        for step in range(pictures // BATCH):
            batches.batch(step)

    return rate(draw, pictures // BATCH * BATCH)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=int, default=512)
    pictures = max(parser.parse_args().pictures, BATCH)
    cv2.setNumThreads(0)
    render(PRESETS["visualatom"].ranges, 0, 0, 0, 512)  # builds the noise table
    for name, side in (("visualatom", 224), ("visualatom-mini", 32)):
        preset = PRESETS[name]
        print(f"{name}: drawn at {preset.canvas}: {drawing(preset, preset.canvas, pictures):7.0f} pictures/s")
        print(f"{name}: drawn at {side}: {drawing(preset, side, pictures):7.0f} pictures/s")
        print(f"{name}: training batches at {side}: {pipeline(name, side, pictures):7.0f} pictures/s")
    print(f"target at 224: {TARGET:.0f} pictures/s")


if __name__ == "__main__":
    main()
