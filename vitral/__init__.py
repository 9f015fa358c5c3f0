"""Vitral: the Vision Transformer from the paper to production.

import vitral

vitral.check("photos/").problems()                  # damage, duplicates, leaks
print(vitral.plan("photos/", time="10m"))           # what that would do, and why
print(vitral.starts("photos/", "auto"))             # which start pays for them
result = vitral.finetune("photos/", time="10m")     # a folder with one sub-folder per class
classifier = vitral.load("runs/photos/classifier")  # or "vit-s14@dinov2", "ViT-B_16.npz", "hf:owner/name"
classifier.predict("photo.jpg")
vitral.predict_to_file(classifier, "photos/", "predictions.parquet")
vitral.BatchPredictor("runs/photos")                # a function of a batch, for Ray Data, datasets, Spark, Daft
vitral.evaluate(classifier, "photos/")
vitral.compare("runs/photos-2", "runs/photos", "photos/")
vitral.explain(classifier, "photo.jpg")
vitral.distill("runs/photos", "more-photos/")       # a smaller network that answers alike
vitral.export("runs/photos", "photos-onnx/")        # one file for ONNX Runtime, browsers, C++
vitral.convert("runs/photos", "for-transformers/", format="transformers")
"""

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

# Before torch is imported:
if sys.platform == "darwin":  # what a Mac's GPU does not compute, the CPU does
    os.environ.setdefault("PYTORCH_ENABLE_MPS_FALLBACK", "1")
if sys.platform == "linux":  # threads that wait for others soon leave their core to another program (docs/decisions.md)
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")

if TYPE_CHECKING:
    from vitral.checks.check_data import check_data
    from vitral.classifier.bulk.batch_predictor import BatchPredictor as BatchPredictor
    from vitral.classifier.bulk.predict_to_file import predict_to_file as predict_to_file
    from vitral.classifier.classifier import Classifier as Classifier
    from vitral.classifier.convert import convert as convert
    from vitral.classifier.convert import push as push
    from vitral.classifier.load import load as load
    from vitral.deployment.add_classes import add_classes as add_classes
    from vitral.deployment.bench import bench as bench
    from vitral.deployment.calibrate import calibrate as calibrate
    from vitral.deployment.quantize import quantize as quantize
    from vitral.deployment.select_images import select_images as select_images
    from vitral.deployment.tune import tune as tune
    from vitral.errors import VitralError as VitralError
    from vitral.evaluation.aspects import aspects as aspects
    from vitral.evaluation.compare import compare as compare
    from vitral.evaluation.corruptions import robustness as robustness
    from vitral.evaluation.evaluate import evaluate as evaluate
    from vitral.evaluation.frozen import score_frozen as score_frozen
    from vitral.explanation.explain import explain as explain
    from vitral.exporting.export import export as export
    from vitral.models.catalog import list_models as list_models
    from vitral.models.families import create_model as create_model
    from vitral.plugins import load_plugin as load_plugin
    from vitral.plugins import register as register
    from vitral.studies.compare_starts import starts as starts
    from vitral.studies.distill import distill as distill
    from vitral.studies.finetune import finetune as finetune
    from vitral.studies.paper.run import study as study
    from vitral.studies.paper_table import table as table
    from vitral.studies.vtab_study import vtab as vtab
    from vitral.training.pretrain import pretrain as pretrain
    from vitral.training.preview import plan as plan

    check = check_data

__version__ = "0.3.0"

# The module of each public name. It is imported at first use, so that `vitral --help` does not wait for torch.
_HOMES = {
    "BatchPredictor": "vitral.classifier.bulk.batch_predictor",
    "Classifier": "vitral.classifier.classifier",
    "VitralError": "vitral.errors",
    "add_classes": "vitral.deployment.add_classes:add_classes",
    "aspects": "vitral.evaluation.aspects",
    "bench": "vitral.deployment.bench",
    "calibrate": "vitral.deployment.calibrate",
    "check": "vitral.checks.check_data:check_data",
    "compare": "vitral.evaluation.compare",
    "convert": "vitral.classifier.convert",
    "create_model": "vitral.models.families",
    "distill": "vitral.studies.distill",
    "evaluate": "vitral.evaluation.evaluate",
    "explain": "vitral.explanation.explain",
    "export": "vitral.exporting.export",
    "finetune": "vitral.studies.finetune",
    "list_models": "vitral.models.catalog",
    "load": "vitral.classifier.load",
    "plan": "vitral.training.preview",
    "predict_to_file": "vitral.classifier.bulk.predict_to_file",
    "pretrain": "vitral.training.pretrain",
    "load_plugin": "vitral.plugins",
    "push": "vitral.classifier.convert",
    "quantize": "vitral.deployment.quantize",
    "register": "vitral.plugins",
    "score_frozen": "vitral.evaluation.frozen",
    "robustness": "vitral.evaluation.corruptions",
    "select_images": "vitral.deployment.select_images:select_images",
    "starts": "vitral.studies.compare_starts:starts",
    "study": "vitral.studies.paper.run",
    "table": "vitral.studies.paper_table:table",
    "tune": "vitral.deployment.tune",
    "vtab": "vitral.studies.vtab_study:vtab",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:  # noqa: ANN401  # PEP 562: a module's attributes have any type
    if name not in _HOMES:
        raise AttributeError(f"module 'vitral' has no attribute '{name}'")
    module, _, attribute = _HOMES[name].partition(":")
    return getattr(importlib.import_module(module), attribute or name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
