"""Packages of machine code that torch runs without Vitral's source; they are written and checked, never opened here."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar, NoReturn

import numpy as np

from vitral.errors import ModelError, WeightsError, one_line
from vitral.inference.engines import Precision
from vitral.inference.exported.format import Answer, Check, Decoded, ExportFormat, Layers, Programs, Sample

PYTHON = """\
# pip install torch numpy pillow; the same version of torch, and a processor with the same instructions
import json
import numpy as np
import torch
from PIL import Image, ImageOps

model = torch._inductor.aoti_load_package("model.pt2")
names = json.loads(model.get_metadata()["class_names"])
image = np.array(ImageOps.exif_transpose(Image.open("photo.jpg")).convert("RGB"))
probabilities = model(torch.from_numpy(image)[None])[0][0]
print(names[int(probabilities.argmax())], float(probabilities.max()))"""
CPP = """\
// uint8_t* pixels: rows * columns * 3 bytes, red, green, blue, from whatever decodes your images; int64_t rows, columns
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/torch.h>

c10::InferenceMode inference;
torch::inductor::AOTIModelPackageLoader model("model.pt2");
auto images = torch::from_blob(pixels, {1, rows, columns, 3}, torch::kUInt8);
auto probabilities = model.run({images})[0];  // (1, classes)"""
WARNING = (
    "> **This file is machine code.** Loading it runs it, like any program: load only what you trust. It is tied to the "
    "version of torch and to the kind of processor that it was compiled with; for other machines take ONNX.\n"
)


class TorchFormat(ExportFormat):
    """See `ExportFormat`. A file is tied to a version of torch and to the instructions of a processor."""

    title: ClassVar[str] = "a package for torch"
    files: ClassVar[tuple[str, ...]] = ("model.pt2",)
    writes_int8: ClassVar[bool] = False
    samples: ClassVar[tuple[Sample, ...]] = (Sample("Python", "python", PYTHON), Sample("C++", "cpp", CPP))
    warning: ClassVar[str] = WARNING

    def write(self, programs: Programs, metadata: Mapping[str, str], path: Path) -> Layers:
        """Compile a classifier for this machine's processor; that takes minutes, and a C++ compiler."""
        import torch

        program = programs.whole()
        settings = {"aot_inductor.metadata": dict(metadata), "freezing": True}
        try:
            with torch.no_grad():
                torch._inductor.aoti_compile_and_package(program, package_path=str(path), inductor_configs=settings)
        except Exception as error:  # the compiler raises anything
            raise ModelError(f"The network cannot be compiled here ({one_line(error)}).") from error
        return {}

    def open(self, path: Path, precision: Precision) -> NoReturn:
        """Refuse a file, because loading it runs it."""
        raise WeightsError(
            f"'{path}' is a program for torch, perhaps machine code, which is never run here; load the classifier that it was "
            "made from, export that as ONNX, or run it in a program of your own."
        )

    def checks(self, path: Path, precision: Precision) -> Iterator[Check]:
        """Give how a file that was written just now is computed."""
        yield Check(f"torch's package in {precision}", _packaged(path))


def _packaged(file: Path) -> Answer:
    import torch

    package = torch._inductor.aoti_load_package(str(file))

    def answer(images: Decoded) -> np.ndarray:
        with torch.no_grad():
            return package(torch.from_numpy(images))[0].numpy()

    return answer
