"""Prediction on this CPU: our engines beside timm and transformers in turns, and photos end to end beside the engine alone.

    python benchmarks/inference.py [--networks vit-b16 vit-s16 ...] [--photos FOLDER] [--compile] [--rounds 5]
        [--zentorch PYTHON] [--json inference.json]

For each network `vitral.bench` measures every engine, and every peer that is installed (inference_peers.py), at batches of 1
and 8, in turns, so that a change of the machine's pace meets all of them. A line for each precision and batch says which of
ours is the fastest, beside the best peer (timm eager, compiled and by zentorch, transformers; all on random images already in
memory), and the share of what large products in that precision allow, measured in the same turns. A line more says how many
times our bf16 int8 is, with ranges found on random images, on which speed does not depend; what int8 costs in accuracy
`vitral quantize` says. The runtimes that are packages of their own, OpenVINO and ONNX Runtime, compute our network as an engine
of ours: where one of them is the fastest the line names it.

With --photos, the first network predicts the folder's photos into a file (`vitral predict FOLDER --out`, engine and precision
its own choice) in turns with the same engine on as many images in memory; the line says the photos' share of that speed.

The peers are in the extra: pip install -e '.[peers,openvino,onnxruntime]'. --compile takes minutes for each network; so may
zentorch, which takes a torch of its own: python -m venv zen; zen/bin/pip install zentorch==2.14.0.1 torch==2.14.0 timm; then
--zentorch zen/bin/python.
"""

import argparse
import json
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from inference_peers import peers

import vitral
from vitral.classifier.bulk.ahead import BATCH_SIZE
from vitral.deployment.bench import Bench, Speed
from vitral.events import ignore
from vitral.inference.quantization import Quantization, linear_layers
from vitral.inference.ranges import find_ranges
from vitral.machine import has_int8

NETWORKS = ("vit-b16", "vit-ti16", "vit-s16", "r50-vit-b16", "resnet-50", "cvt-13")
SIZE = 224
BATCH_SIZES = (1, 8)
OURS = "vitral "


def compared(found: Bench) -> list[str]:
    """Return a line for each precision and batch size: the fastest of ours, the best peer, and the limit."""
    lines = []
    for precision in found.limits:
        for size in sorted({speed.batch_size for speed in found.speeds}):
            rows = [row for row in found.speeds if (row.precision, row.batch_size) == (precision, size)]
            ours = fastest([row for row in rows if row.name.startswith(OURS)])
            peer = fastest([row for row in rows if not row.name.startswith(OURS)])
            if ours is None:
                continue
            line = f"  {precision} batch {size}: {ours.name} {ours.images_per_second:.1f} images/s"
            line += f", {ours.share_of_limit:.0%} of the limit"
            if peer is not None:
                ratio = ours.images_per_second / peer.images_per_second
                line += f"; {ratio:.2f} times {peer.name} ({peer.images_per_second:.1f})"
            lines.append(line)
    for size in BATCH_SIZES:
        integers, ours = (
            fastest(
                [row for row in found.speeds if row.name.startswith(OURS) and (row.precision, row.batch_size) == one]
            )
            for one in (("int8", size), ("bf16", size))
        )
        if integers is not None and ours is not None:
            lines.append(
                f"  int8 batch {size}: {integers.images_per_second / ours.images_per_second:.2f} times {ours.name} in bf16"
            )
    return lines


def ranges(classifier: vitral.Classifier) -> Quantization | None:
    """Return an int8 form whose ranges are of random images; None of a network or a CPU that has none."""
    if not has_int8() or not linear_layers(classifier.model):
        return None
    images = torch.randn(8, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(0))
    layers = {name: found.inputs for name, found in find_ranges(classifier.model, iter([images])).items()}
    return Quantization(layers, (), classifier.model.image_size, "random images", 0, 0.0, 0.0, 0.0)


def fastest(rows: list[Speed]) -> Speed | None:
    """Return the fastest of some rows; None of none."""
    return max(rows, key=lambda row: row.images_per_second, default=None)


def end_to_end(name: str, photos: Path, rounds: int) -> dict[str, Any]:
    """Predict a folder into a file, in turns with the engine alone on as many images in memory."""
    classifier = vitral.load(name, image_size=SIZE, engine="auto", precision="auto", listener=ignore)
    predictor = classifier.predictor
    batch = torch.randn(BATCH_SIZE, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(0))
    predictor.logits(batch)
    alone, whole = [], []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            written = vitral.predict_to_file(classifier, photos, Path(folder) / f"{number}.csv", listener=ignore)
            count = written.images - written.errors
            whole.append(count / written.seconds)
            begun, done = time.perf_counter(), 0
            while done < count:
                predictor.logits(batch[: count - done])
                done += len(batch[: count - done])
            alone.append(count / (time.perf_counter() - begun))
    found = {"photos": count, "computed_by": predictor.computed_by, "photos_per_second": statistics.median(whole)}
    share = statistics.median(one / other for one, other in zip(whole, alone, strict=True))
    return {**found, "alone_per_second": statistics.median(alone), "share": share}


def keep(results: dict[str, Any], path: Path | None) -> None:
    """Write what there is so far."""
    if path is not None:
        path.write_text(json.dumps(results, indent=2))


def main() -> None:
    """Measure, and print a line for each question."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS))
    parser.add_argument("--photos", type=Path)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--zentorch", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    results: dict[str, Any] = {}
    for name in asked.networks:
        classifier = vitral.load(name, image_size=SIZE, listener=ignore)
        classifier.quantization = ranges(classifier)
        found = vitral.bench(
            classifier,
            batch_sizes=BATCH_SIZES,
            compile=asked.compile,
            peers=partial(peers, compile=asked.compile, zentorch=asked.zentorch),
            rounds=asked.rounds,
            listener=ignore,
        )
        results[name] = found.to_json()
        keep(results, asked.json)
        print("\n".join([*found.lines(), *compared(found)]), flush=True)
    if asked.photos is not None:
        ours = results["photos"] = end_to_end(asked.networks[0], asked.photos, asked.rounds)
        print(
            f"{ours['photos']} photos into a file by {asked.networks[0]}, {ours['computed_by']}: "
            f"{ours['photos_per_second']:.1f} photos/s, {ours['share']:.0%} of the engine alone"
        )
        keep(results, asked.json)


if __name__ == "__main__":
    main()
