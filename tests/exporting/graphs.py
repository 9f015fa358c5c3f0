"""Parts of exported files by themselves: a module of torch as a session of ONNX Runtime."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vitral.exporting.preparation import EXAMPLE
from vitral.inference.engines import OPSET, onnxruntime_session


class OfAnswers(nn.Module):
    """Gives what a reading makes of answers to photos, of which only the size counts."""

    def __init__(self, reading: nn.Module, kind: Any = None) -> None:  # noqa: ANN401  # a class of answers
        super().__init__()
        self.reading, self.kind = reading, kind

    def forward(self, images: Tensor, *answers: Tensor) -> Any:  # noqa: ANN401
        """Return the outputs."""
        given = self.kind(*answers) if self.kind else answers[0]
        return self.reading(given, images.shape[1], images.shape[2])


def session_of(reading: nn.Module, answers: Sequence[Tensor], kind: Any = None) -> Any:  # noqa: ANN401
    """Return a session that takes images (batch, rows, columns, 3) and answers, each with a batch first."""
    batch, rows, columns = (torch.export.Dim(name) for name in ("batch", "rows", "columns"))
    example = torch.zeros(*EXAMPLE, 3, dtype=torch.uint8)
    free = ({0: batch, 1: rows, 2: columns}, tuple({0: batch} for _ in answers))
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's, of its own parts
        program = torch.export.export(OfAnswers(reading, kind), (example, *answers), dynamic_shapes=free)
        made = torch.onnx.export(program, dynamo=True, opset_version=OPSET, verbose=False)
    assert made is not None
    return onnxruntime_session(made.model_proto.SerializeToString(), 1)


def run(session: Any, names: Sequence[str], size: tuple[int, int], *answers: Tensor) -> Mapping[str, np.ndarray]:  # noqa: ANN401
    """Return a session's outputs for photos of a size."""
    images = np.zeros((len(answers[0]), *size, 3), dtype=np.uint8)
    given = [images, *(each.numpy() for each in answers)]
    inputs = {port.name: value for port, value in zip(session.get_inputs(), given, strict=True)}
    return dict(zip(names, session.run(None, inputs), strict=True))


def one(outputs: Mapping[str, np.ndarray], index: int) -> dict[str, np.ndarray]:
    """Return the outputs of one image of a batch, as a batch of one."""
    return {name: value[index : index + 1] for name, value in outputs.items()}
