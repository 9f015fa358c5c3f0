"""The text beside an exported file: what goes in, what comes out, and how it is used without Vitral."""

import json
from collections.abc import Mapping

from vitral.classifier.classifier import Classifier
from vitral.inference.exported.open import FILES, Format
from vitral.printable import in_markdown, printable

TITLES = {"onnx": "ONNX", "openvino": "OpenVINO", "torch": "a package for torch"}

PYTHON = {
    "onnx": """\
# pip install onnxruntime numpy pillow
import json
import numpy as np
import onnxruntime
from PIL import Image, ImageOps

session = onnxruntime.InferenceSession("model.onnx")
names = json.loads(session.get_modelmeta().custom_metadata_map["class_names"])
image = np.asarray(ImageOps.exif_transpose(Image.open("photo.jpg")).convert("RGB"))
probabilities = session.run(["probabilities"], {"images": image[None]})[0][0]
print(names[probabilities.argmax()], probabilities.max())""",
    "openvino": """\
# pip install openvino numpy pillow
import json, numpy as np, openvino
from PIL import Image, ImageOps

core = openvino.Core()
model = core.read_model("model.xml")
names = json.loads(model.get_rt_info(["vitral", "class_names"]).value)
image = np.asarray(ImageOps.exif_transpose(Image.open("photo.jpg")).convert("RGB"))
exact = core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
probabilities = exact(image[None])["probabilities"][0]
print(names[probabilities.argmax()], probabilities.max())""",
    "torch": """\
# pip install torch numpy pillow; the same version of torch, and a processor with the same instructions
import json
import numpy as np
import torch
from PIL import Image, ImageOps

model = torch._inductor.aoti_load_package("model.pt2")
names = json.loads(model.get_metadata()["class_names"])
image = np.array(ImageOps.exif_transpose(Image.open("photo.jpg")).convert("RGB"))
probabilities = model(torch.from_numpy(image)[None])[0][0]
print(names[int(probabilities.argmax())], float(probabilities.max()))""",
}

CPP = {
    "onnx": """\
// uint8_t* pixels: rows * columns * 3 bytes, red, green, blue, from whatever decodes your images; int64_t rows, columns
#include <onnxruntime_cxx_api.h>

Ort::Env env;
Ort::Session session(env, "model.onnx", Ort::SessionOptions());
int64_t shape[] = {1, rows, columns, 3};
auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
auto images = Ort::Value::CreateTensor<uint8_t>(memory, pixels, rows * columns * 3, shape, 4);
const char *in[] = {"images"}, *out[] = {"probabilities"};
auto answers = session.Run(Ort::RunOptions(), in, &images, 1, out, 1);
const float *probabilities = answers[0].GetTensorData<float>();  // one for each class""",
    "openvino": """\
// uint8_t* pixels: rows * columns * 3 bytes, red, green, blue, from whatever decodes your images; size_t rows, columns
#include <openvino/openvino.hpp>

ov::Core core;
auto model = core.compile_model("model.xml", "CPU", ov::hint::inference_precision(ov::element::f32));
auto request = model.create_infer_request();
request.set_tensor("images", ov::Tensor(ov::element::u8, {1, rows, columns, 3}, pixels));
request.infer();
const float *probabilities = request.get_tensor("probabilities").data<float>();  // one for each class""",
    "torch": """\
// uint8_t* pixels: rows * columns * 3 bytes, red, green, blue, from whatever decodes your images; int64_t rows, columns
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/torch.h>

c10::InferenceMode inference;
torch::inductor::AOTIModelPackageLoader model("model.pt2");
auto images = torch::from_blob(pixels, {1, rows, columns, 3}, torch::kUInt8);
auto probabilities = model.run({images})[0];  // (1, classes)""",
}

JAVASCRIPT = """\
// npm install onnxruntime-web; image: an ImageBitmap, as createImageBitmap makes of a file or of an <img>
import * as ort from "onnxruntime-web";

const session = await ort.InferenceSession.create("model.onnx");
const canvas = new OffscreenCanvas(image.width, image.height);
const context = canvas.getContext("2d");
context.drawImage(image, 0, 0);
const rgba = context.getImageData(0, 0, canvas.width, canvas.height).data;
const rgb = rgba.filter((_, index) => index % 4 < 3);
const images = new ort.Tensor("uint8", new Uint8Array(rgb), [1, canvas.height, canvas.width, 3]);
const { probabilities } = await session.run({ images }, ["probabilities"]);"""

WARNING = (
    "> **This file is machine code.** Loading it runs it, like any program: load only what you trust. It is tied to the "
    "version of torch and to the kind of processor that it was compiled with; for other machines take ONNX.\n"
)
PREPARED_ROW = "| out | `prepared` | float32 | batch, 3, height, width: what the network sees |"


def readme(classifier: Classifier, format_name: Format, metadata: Mapping[str, str]) -> str:
    """Return the text as Markdown.

    Args:
        classifier: what was exported.
        format_name: "onnx", "openvino" or "torch".
        metadata: what the file says of itself.
    """
    threshold = json.loads(metadata.get("threshold", "null"))
    sure = f" Answers below {threshold:.1%} are not sure." if threshold is not None else ""
    lines = [
        f"# {FILES[format_name][0]}",
        "",
        f"An image classifier as {TITLES[format_name]}, written by Vitral: {in_markdown(metadata['network'])}, "
        f"{len(classifier.class_names)} {classifier.task.noun}. It needs neither Vitral nor any preprocessing: it "
        "resizes, crops and normalises images itself.",
        "",
        *([WARNING] if format_name == "torch" else []),
        "| | name | type | axes |",
        "|---|---|---|---|",
        "| in | `images` | uint8 | batch, height, width, 3: red, green, blue; any size, the same for all of a batch |",
        f"| out | `probabilities` | float32 | batch, classes: {classifier.task.meaning}.{sure} |",
        "| out | `logits` | float32 | batch, classes: what the network gives |",
        *([PREPARED_ROW] if format_name == "openvino" else []),
        "",
        "Photographs have to be turned upright by their EXIF orientation first, as the Python below does.",
        "",
        *_block("Python", "python", PYTHON[format_name]),
        *_block("C++", "cpp", CPP[format_name]),
        *(_block("JavaScript", "js", JAVASCRIPT) if format_name == "onnx" else []),
        "## What the file says of itself",
        "",
        f"Its metadata have the entries {', '.join(f'`{name}`' for name in metadata)}; all but plain texts are JSON.",
        f"Licence of the weights it started from: {in_markdown(metadata['license'])}",
        "",
        "## Classes, in order",
        "",
        *(f"{index}. {in_markdown(label)}" for index, label in enumerate(classifier.class_names)),
        "",
    ]
    return printable("\n".join(lines), lines=True)


def _block(title: str, language: str, code: str) -> list[str]:
    return [f"## {title}", "", f"```{language}", code, "```", ""]
