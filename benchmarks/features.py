"""How fast a network's features are computed: ours as commands compute them, beside timm, transformers and OpenVINO, in turns.

    .venv/bin/python benchmarks/features.py --network dinov2-s14 --sizes 126 224

Weights are random unless `--network` names a file: the speed does not depend on them. Beside images/s by the clock stand images
a second of processor time, which other work on the machine changes little.
"""

import argparse
import importlib
import importlib.util
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

import vitral
from vitral.events import ignore
from vitral.inference.choice import INTEGERS, computations_of, predictor_in
from vitral.inference.engines import openvino_core, openvino_hints
from vitral.inference.int8 import HAS_INT8
from vitral.inference.quantization import Quantization, linear_layers
from vitral.inference.ranges import find_ranges
from vitral.machine import has_int8, has_native_bf16, processor_name

Compute = Callable[[Tensor], object]
TIMM = {"dinov2-s14": "vit_small_patch14_dinov2", "efficientnet-lite0": "tf_efficientnet_lite0"}
CPU = torch.device("cpu")


def ours(name: str, size: int) -> Iterator[tuple[str, Compute]]:
    """Give every engine of ours that computes the network here."""
    model = vitral.load(name, image_size=size, listener=ignore).model
    for way in computations_of(model, "auto", "auto"):
        yield f"vitral {way}", predictor_in(model, way).features
    if HAS_INT8 and has_int8() and linear_layers(model):
        found = find_ranges(model, iter(torch.randn(8, 3, size, size).split(4)))
        layers = {layer: fit.inputs for layer, fit in found.items()}
        form = Quantization(layers, (), model.image_size, "noise", 0, 0.0, 0.0, 0.0)
        yield f"vitral {INTEGERS}", predictor_in(model, INTEGERS, form).features


def peers(name: str, size: int) -> Iterator[tuple[str, Compute]]:
    """Give the networks of other libraries, as their users run them."""
    networks: dict[str, nn.Module] = {}
    if importlib.util.find_spec("timm") is not None and name in TIMM:
        timm = importlib.import_module("timm")
        how = {"img_size": size} if name.startswith("dinov2") else {}
        networks["timm"] = timm.create_model(TIMM[name], num_classes=0, **how).eval()
    if importlib.util.find_spec("transformers") is not None and name == "dinov2-s14":
        transformers = importlib.import_module("transformers")
        config = transformers.Dinov2Config(hidden_size=384, num_attention_heads=6, patch_size=14, image_size=518)
        networks["transformers"] = transformers.Dinov2Model(config).eval()
    for library, network in networks.items():
        yield f"{library} in fp32", network
        if has_native_bf16(CPU):
            yield f"{library} in bf16", autocast(network)
    if "timm" in networks and importlib.util.find_spec("openvino") is not None:
        converted = importlib.import_module("openvino").convert_model(
            networks["timm"], example_input=torch.zeros(1, 3, size, size)
        )
        for precision in ("fp32", "bf16") if has_native_bf16(CPU) else ("fp32",):
            hints = openvino_hints(precision, torch.get_num_threads())
            compiled = openvino_core().compile_model(converted, "CPU", hints)
            yield f"openvino of timm in {precision}", lambda images, run=compiled: run(images.numpy())


def autocast(network: nn.Module) -> Compute:
    """Return a network that computes in bfloat16 where torch's autocast does."""

    def compute(images: Tensor) -> object:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return network(images)

    return compute


def measure(contenders: dict[str, Compute], images: Tensor, rounds: int) -> dict[str, tuple[float, float]]:
    """Return the images a second, by the clock and of processor time: the best of some rounds in turns."""
    best = dict.fromkeys(contenders, (0.0, 0.0))
    for number in range(rounds + 1):
        for name, compute in contenders.items():
            wall, processor = time.perf_counter(), time.process_time()
            compute(images)
            paces = len(images) / (time.perf_counter() - wall), len(images) / (time.process_time() - processor)
            if number:  # the first round sets up
                best[name] = max(best[name][0], paces[0]), max(best[name][1], paces[1])
    return best


@torch.inference_mode()
def main() -> None:
    """Print a table for each size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", default="dinov2-s14", help="a name or a file")
    parser.add_argument("--like", help="the name of the network that a file holds, for its peers")
    parser.add_argument("--sizes", type=int, nargs="+", default=[126, 224], help="pixels")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    wanted = parser.parse_args()
    print(f"{processor_name()}, {torch.get_num_threads()} threads, torch {torch.__version__}, {wanted.network}")
    for size in wanted.sizes:
        with torch.inference_mode(mode=False):
            contenders = {**dict(ours(wanted.network, size)), **dict(peers(wanted.like or wanted.network, size))}
        paces = measure(contenders, torch.randn(wanted.batch, 3, size, size), wanted.rounds)
        plain = paces["vitral torch in fp32"]
        print(f"\n| {size} pixels | images/s | a processor second | times plain torch |\n|---|---|---|---|")
        for name, (wall, processor) in sorted(paces.items(), key=lambda each: -each[1][1]):
            print(f"| {name} | {wall:.1f} | {processor:.1f} | {processor / plain[1]:.2f} |")


if __name__ == "__main__":
    main()
