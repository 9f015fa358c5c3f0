"""A fine-tuning by Ray Train: as many processes as are wanted on a cluster of Ray, started again when one is lost.

python deploy/ray_train.py /shared/photos /shared/runs/photos --workers 8 --gpu

The folders lie on storage that all machines share. What follows "--set" changes the recipe, as in `vitral finetune`.
"""

import argparse
from pathlib import Path
from typing import Any

import ray.train
from ray.train.torch import TorchConfig, TorchTrainer


def train(options: dict[str, Any]) -> None:
    """Fine-tune together with the other workers; Ray has told torch of them."""
    import vitral

    photos, start, out, overrides = (options[name] for name in ("photos", "start", "out", "overrides"))
    vitral.finetune(photos, source=start, out=out, overrides=overrides, resume=True)


def found(name: str) -> str:
    """Return a file or folder by its whole path, since workers have other current folders; other names as they are."""
    return str(Path(name).absolute()) if Path(name).exists() else name


def main() -> None:
    """Read the command line and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=found)
    parser.add_argument("out", type=lambda name: str(Path(name).absolute()))
    parser.add_argument("--from", dest="start", type=found)
    parser.add_argument("--set", dest="overrides", nargs="*", default=[])
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--gpu", action="store_true")
    options = vars(parser.parse_args())
    TorchTrainer(
        train,
        train_loop_config=options,
        # Vitral passes numbers between the processes' memories, and gradients between their GPUs.
        torch_config=TorchConfig(backend="cpu:gloo,cuda:nccl" if options["gpu"] else "gloo"),
        scaling_config=ray.train.ScalingConfig(num_workers=options["workers"], use_gpu=options["gpu"]),
        run_config=ray.train.RunConfig(failure_config=ray.train.FailureConfig(max_failures=3)),
    ).fit()


if __name__ == "__main__":
    main()
