"""A classifier as OpenVINO's own pair of files."""

import errno
import tempfile
from collections.abc import Mapping
from pathlib import Path

import openvino

from vitral.classifier.classifier import Classifier
from vitral.errors import ModelError, one_line
from vitral.exporting.onnx_file import write_onnx
from vitral.exporting.whole import Layers
from vitral.inference.engines import openvino_core
from vitral.inference.exported.openvino_graph import METADATA


def write_openvino(classifier: Classifier, metadata: Mapping[str, str], path: Path) -> Layers:
    """Write a classifier as NAME.xml beside NAME.bin, by way of ONNX.

    Args:
        classifier: what is written.
        metadata: texts by name, which the file has under "vitral".
        path: NAME.xml.

    Returns:
        The names of the values that the network's layers give.

    Raises:
        ModelError: the network has an operation that a graph or OpenVINO has not.
        OSError: the files cannot be written.
    """
    with tempfile.TemporaryDirectory(prefix="vitral-openvino-", dir=path.parent) as folder:
        between = Path(folder) / "between.onnx"
        layers = write_onnx(classifier, {}, between, keep_prepared=True)  # which else is fused with the first layer
        try:
            model = openvino_core().read_model(between)
        except Exception as error:  # the converter raises anything
            raise ModelError(f"The network cannot be written for OpenVINO ({one_line(error)}).") from error
        for name, text in metadata.items():
            model.set_rt_info(text, [METADATA, name])
        try:
            openvino.save_model(model, path, compress_to_fp16=False)
        except RuntimeError as error:  # which hides the system's own
            raise OSError(errno.ENOSPC if "iostream" in str(error) else errno.EIO, one_line(error)) from error
    return layers
