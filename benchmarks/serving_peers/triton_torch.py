"""Triton, by PyTriton, with the same network in Python and its dynamic batches. Arguments: CLASSIFIER PORT."""

import json
import os
import sys
import sysconfig

import numpy as np
import torch
from network import Network
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

# Its Python is a program of its own, which else takes the system's library for the interpreter's.
os.environ["LD_LIBRARY_PATH"] = sysconfig.get_config_var("LIBDIR")
network = Network(sys.argv[1])


@batch
def predict(image: np.ndarray) -> list[np.ndarray]:
    images = torch.stack([network.prepare(content) for (content,) in image])
    answers = [json.dumps(network.described(row)).encode() for row in network.probabilities(images)]
    return [np.array(answers, dtype=bytes)[:, None]]


config = TritonConfig(http_address="127.0.0.1", http_port=int(sys.argv[2]), allow_grpc=False, allow_metrics=False)
with Triton(config=config) as triton:
    triton.bind(
        "network",
        predict,
        inputs=[Tensor(name="image", dtype=bytes, shape=(1,))],
        outputs=[Tensor(name="classes", dtype=bytes, shape=(1,))],
        config=ModelConfig(max_batch_size=16, batcher=DynamicBatcher()),
    )
    triton.serve()
