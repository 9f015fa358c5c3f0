"""A classifier as a package of machine code that torch runs without Vitral's source."""

from collections.abc import Mapping
from pathlib import Path

import torch

from vitral.classifier.classifier import Classifier
from vitral.errors import ModelError, one_line
from vitral.exporting.whole import DECODED, Whole, decoded_example, trace


def write_torch_package(classifier: Classifier, metadata: Mapping[str, str], path: Path) -> None:
    """Compile a classifier for this machine's processor and write it as a .pt2 file; that takes minutes, and a C++ compiler.

    The file is tied to this version of torch and to the instructions of this processor, and is as dangerous as any program.

    Args:
        classifier: what is written.
        metadata: texts by name.
        path: the file.

    Raises:
        ModelError: the network cannot be a graph, or not be compiled here.
    """
    program = trace(Whole(classifier), decoded_example(), DECODED, classifier)
    settings = {"aot_inductor.metadata": dict(metadata), "freezing": True}
    try:
        with torch.no_grad():
            torch._inductor.aoti_compile_and_package(program, package_path=str(path), inductor_configs=settings)
    except Exception as error:  # the compiler raises anything
        raise ModelError(f"The network cannot be compiled here ({one_line(error)}).") from error
