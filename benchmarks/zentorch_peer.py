"""A peer that needs another version of torch: timm by zentorch, computed by another Python and asked from here."""

import contextlib
import json
import os
import subprocess
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import torch

from vitral.errors import ModelError
from vitral.inference.engines import Precision
from vitral.inference.runtimes import DTYPES
from vitral.models.model import Images, Logits

# Run by the other Python, which has no Vitral: the first line describes the network, each further one asks for a pass of so
# many images, which the line that answers ends.
PROGRAM = """\
import json, sys
import timm, torch, zentorch
asked = json.loads(sys.stdin.readline())
dtype = getattr(torch, asked["dtype"])
network = timm.create_model(asked["network"], **asked["arguments"]).eval().to(dtype)
forward = torch.compile(network, backend="zentorch")
answers, sys.stdout = sys.stdout, sys.stderr
with torch.inference_mode():
    for line in sys.stdin:
        forward(torch.zeros(int(line), 3, *asked["image_size"], dtype=dtype))
        print("done", file=answers, flush=True)
"""


class ZentorchPeer:
    """timm's network, compiled with random weights for zentorch in a process of its own.

    Args:
        python: An interpreter that has torch, timm and zentorch.
        network: timm's name.
        arguments: The arguments with which timm makes it.
        image_size: Height and width, pixels.
        precision: "fp32" or "bf16".

    Raises:
        ModelError: The other Python cannot be run; or, of a call, lacks a package or failed: in the last line that it wrote.
    """

    def __init__(
        self,
        python: Path,
        network: str,
        arguments: Mapping[str, Any],
        image_size: tuple[int, int],
        precision: Precision,
    ) -> None:
        self.classes = int(arguments["num_classes"])
        self._errors = tempfile.TemporaryFile(mode="w+")  # noqa: SIM115  # it is read when the process has failed
        settings = {"OMP_NUM_THREADS": str(torch.get_num_threads()), "TORCHINDUCTOR_FREEZING": "1"}
        try:
            self._process = subprocess.Popen(
                [str(python), "-c", PROGRAM],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
                env={**os.environ, **settings},
            )
        except OSError as error:
            self._errors.close()
            raise ModelError(f"'{python}' is no Python that can be run ({error.strerror}).") from error
        self._ends = weakref.finalize(self, _end, self._process, self._errors)
        request = {"network": network, "arguments": dict(arguments), "image_size": list(image_size)}
        self._say(json.dumps({**request, "dtype": str(DTYPES[precision]).removeprefix("torch.")}))

    def __call__(self, images: Images) -> Logits:
        """Compute as many images, of zeros, and return zeros: its weights are random, and only the time counts."""
        self._say(str(len(images)))
        answers = self._process.stdout
        assert answers is not None, "it is a pipe"
        if answers.readline().strip() != "done":
            raise ModelError(self._reason())
        return torch.zeros(len(images), self.classes)

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None, "it is a pipe"
        try:
            print(line, file=self._process.stdin, flush=True)
        except OSError as error:  # it is gone
            raise ModelError(self._reason()) from error

    def _reason(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().strip().splitlines()
        return lines[-1] if lines else "the other Python ended without a word"


def _end(process: "subprocess.Popen[str]", errors: IO[str]) -> None:
    with errors, contextlib.suppress(OSError), process:  # what was not sent goes to nobody
        process.kill()
