"""AutoGluon's MultiModalPredictor on a folder of photos, from weights of timm, within its own time limit.

    PYTHON autogluon_peer.py FOLDER NETWORK WEIGHTS SECONDS SEED

PYTHON has autogluon.multimodal, FOLDER has train/ and test/, maybe val/. All is its medium-quality preset but for the network:
the preset's own would be downloaded. The last line of the output is JSON.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd
import timm
import torch
from autogluon.multimodal import MultiModalPredictor
from safetensors.torch import load_file

BEGUN = time.monotonic()
SUFFIXES = (".jpg", ".jpeg", ".png")


def table(folder: Path) -> pd.DataFrame:
    """Return the photos of a split with their classes."""
    photos = sorted(photo for photo in folder.glob("*/*") if photo.suffix.lower() in SUFFIXES)
    return pd.DataFrame({"image": [str(photo) for photo in photos], "label": [photo.parent.name for photo in photos]})


def checkpoint(folder: Path, network: str, weights: str) -> Path:
    """Write weights as AutoGluon saves and reads a network of timm."""
    made = timm.create_model(network, num_classes=0)
    tensors = load_file(weights)
    torch.save({name: tensors[name] for name in made.state_dict()}, folder / "pytorch_model.bin")
    config = {**made.default_cfg, "architecture": network, "num_features": made.num_features}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def main() -> None:
    """Learn, score the test photos and print what came out."""
    data, network, weights, seconds, seed = sys.argv[1:]
    folder = Path(data)
    with tempfile.TemporaryDirectory() as made:
        start = checkpoint(Path(made), network, weights)
        predictor = MultiModalPredictor(label="label", problem_type="classification", path=f"{made}/run")
        predictor.fit(
            table(folder / "train"),
            presets="medium_quality",
            tuning_data=table(folder / "val") if (folder / "val").is_dir() else None,
            time_limit=float(seconds) - (time.monotonic() - BEGUN),
            hyperparameters={"model.names": ["timm_image"], "model.timm_image.checkpoint_name": str(start)},
            seed=int(seed),
        )
        taken = time.monotonic() - BEGUN
        photos = table(folder / "test")
        right = (predictor.predict(photos).to_numpy() == photos["label"].to_numpy()).mean()
    print(json.dumps({"accuracy": float(right), "seconds": taken, "chose": "medium quality"}))


if __name__ == "__main__":
    main()
