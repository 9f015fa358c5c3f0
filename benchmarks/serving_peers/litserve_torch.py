"""LitServe with the same network, in batches of what comes within 10 ms. Arguments: CLASSIFIER PORT."""

import base64
import sys

import litserve
import torch
from network import Network
from torch import Tensor


class Classify(litserve.LitAPI):
    def setup(self, device: str) -> None:
        self.network = Network(sys.argv[1])

    def decode_request(self, request: dict[str, str]) -> Tensor:
        return self.network.prepare(base64.b64decode(request["image"]))

    def batch(self, inputs: list[Tensor]) -> Tensor:
        return torch.stack(inputs)

    def predict(self, images: Tensor) -> Tensor:
        return self.network.probabilities(images)

    def unbatch(self, output: Tensor) -> list[Tensor]:
        return list(output)

    def encode_response(self, output: Tensor) -> dict[str, object]:
        return self.network.described(output)


if __name__ == "__main__":
    api = Classify(max_batch_size=16, batch_timeout=0.01)
    litserve.LitServer(api, accelerator="cpu", workers_per_device=1).run(
        host="127.0.0.1", port=int(sys.argv[2]), log_level="error", generate_client_file=False
    )
