"""How many generated images one core draws a second, by process time: other work on the machine does not count.

    OMP_NUM_THREADS=1 taskset -c 0 python benchmarks/generated_speed.py [--images 512]

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
TARGET = 250.0  # images per second at 224 pixels


def rate(draw: Callable[[], None], images: int) -> float:
    """Return images a second of processor time."""
    start = time.process_time()
    draw()
    return images / (time.process_time() - start)


def drawing(preset: Preset, canvas: int, images: int) -> float:
    """Return the speed of drawing alone; the images run through the classes, so cheap and dear ones mix."""

    def draw() -> None:
        for index in range(images):
            render(preset.ranges, 0, index % preset.num_classes, index, canvas)

    return rate(draw, images)


def pipeline(name: str, side: int, images: int) -> float:
    """Return the speed of whole training batches at `side` pixels."""
    data = open_generated(name)
    batches = TrainingBatches(
        data.splits["train"], batch_size=BATCH, image_size=(side, side), augmentation=data.augmentation, seed=0
    )

    def draw() -> None:
        for step in range(images // BATCH):
            batches.batch(step)

    return rate(draw, images // BATCH * BATCH)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=512)
    images = max(parser.parse_args().images, BATCH)
    cv2.setNumThreads(0)
    render(PRESETS["visualatom"].ranges, 0, 0, 0, 512)  # builds the noise table
    for name, side in (("visualatom", 224), ("visualatom-mini", 32)):
        preset = PRESETS[name]
        print(f"{name}: drawn at {preset.canvas}: {drawing(preset, preset.canvas, images):7.0f} images/s")
        print(f"{name}: drawn at {side}: {drawing(preset, side, images):7.0f} images/s")
        print(f"{name}: training batches at {side}: {pipeline(name, side, images):7.0f} images/s")
    print(f"target at 224: {TARGET:.0f} images/s")


if __name__ == "__main__":
    main()
