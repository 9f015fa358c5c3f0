"""BentoML with the same network, in its adaptive batches. Arguments: CLASSIFIER PORT."""

import base64
import os
import sys
from pathlib import Path

import bentoml

NAME = "BENCHMARKED_CLASSIFIER"  # in the environment of the processes that BentoML starts


@bentoml.service(workers=1, traffic={"timeout": 60})
class Classify:
    """A classifier in BentoML's words."""

    def __init__(self) -> None:
        from network import Network

        self.network = Network(os.environ[NAME])

    @bentoml.api(batchable=True, max_batch_size=16, max_latency_ms=30_000)
    def predict(self, image: list[str]) -> list[dict]:
        """Answer images in base64."""
        import torch

        images = torch.stack([self.network.prepare(base64.b64decode(each)) for each in image])
        return [self.network.described(row) for row in self.network.probabilities(images)]


if __name__ == "__main__":
    here = str(Path(__file__).parent)
    what = ("serve", "bentoml_torch:Classify", "--working-dir", here, "--host", "127.0.0.1", "--port", sys.argv[2])
    os.environ |= {NAME: sys.argv[1], "BENTOML_DO_NOT_TRACK": "True"}
    os.execv(sys.executable, [sys.executable, "-m", "bentoml", *what])
