"""LitServe with the same network, in batches of what comes within 10 ms. Arguments: CLASSIFIER PORT."""

import base64
import sys

import litserve
import torch
from network import Network
from torch import Tensor


class Classify(litserve.LitAPI):
    """A classifier in LitServe's words."""

    def setup(self, device: str) -> None:
        """Read the network."""
        self.network = Network(sys.argv[1])

    def decode_request(self, request: dict[str, str]) -> Tensor:
        """Prepare an image."""
        return self.network.prepare(base64.b64decode(request["image"]))

    def batch(self, inputs: list[Tensor]) -> Tensor:
        """Put images together."""
        return torch.stack(inputs)

    def predict(self, images: Tensor) -> Tensor:
        """Compute their probabilities."""
        return self.network.probabilities(images)

    def unbatch(self, output: Tensor) -> list[Tensor]:
        """Take them apart."""
        return list(output)

    def encode_response(self, output: Tensor) -> dict[str, object]:
        """Name the classes of an image."""
        return self.network.described(output)


if __name__ == "__main__":
    api = Classify(max_batch_size=16, batch_timeout=0.01)
    litserve.LitServer(api, accelerator="cpu", workers_per_device=1).run(
        host="127.0.0.1", port=int(sys.argv[2]), log_level="error", generate_client_file=False
    )
