"""Prints the table of docs/how-to/clusters.md: what the paper's own pre-training runs cost on a node of eight GPUs.

python docs/paper_runs.py
"""

import math

from vitral.models.catalog import variant
from vitral.models.families import build, count_parameters
from vitral.studies.paper.operations import H200, operations_of
from vitral.training.settings.recipe import load_recipe

MFU = 0.40  # of an H100's or H200's peak
GPUS, BATCH = 8, 4096
STATE = 4 + 4 + 8 + 2  # bytes a parameter: weight, gradient, two moments in float32, and a copy in bfloat16
PIECES = 16  # of tokens x width that a block keeps for its backward pass, in bfloat16; attention itself keeps nothing
IMAGES = {"imagenet": 1_281_167, "imagenet21k": 14_197_122, "jft300m": 303_000_000}
RUNS = (
    ("vit-b16", "imagenet"),
    ("vit-l16", "imagenet"),
    ("vit-b16", "imagenet21k"),
    ("vit-l16", "imagenet21k"),
    ("vit-b16", "jft300m"),
    ("vit-l16", "jft300m"),
    ("vit-h14", "jft300m"),
)


def main() -> None:
    """Print the table as Markdown."""
    columns = (
        "run",
        "epochs",
        "updates",
        "parameters",
        "state a GPU, DDP / FSDP2",
        "activations an image",
        "images at once in 80 GB, DDP / FSDP2",
        "hours on 8 GPUs",
    )
    print(f"| {' | '.join(columns)} |")
    print("|---" * len(columns) + "|")
    for model, data in RUNS:
        print(row(model, data))


def row(model: str, data: str) -> str:
    """Return one run's line."""
    recipe = load_recipe(f"{model}-{data}")
    config = variant(model)
    parameters = count_parameters(build(config, seed=None))
    epochs = recipe.epochs or 0.0
    images = epochs * IMAGES[data]
    tokens = math.prod(config.grid) + 1
    kept = config.depth * PIECES * tokens * config.dim * 2
    state = parameters * STATE
    room = 72e9  # of 80 GB, what the libraries leave
    fits = [int((room - share) // kept) for share in (state, state / GPUS)]
    hours = operations_of(config, recipe, IMAGES[data]).hours(H200, count=GPUS, share=MFU)
    return (
        f"| {model} on {data} | {epochs:g} | {images / BATCH:,.0f} | {parameters / 1e6:.1f} M | {state / 1e9:.1f} / "
        f"{state / GPUS / 1e9:.1f} GB | {kept / 1e6:.0f} MB | {min(fits[0], BATCH // GPUS)} / "
        f"{min(fits[1], BATCH // GPUS)} of {BATCH // GPUS} | {hours:,.0f} |"
    )


if __name__ == "__main__":
    main()
