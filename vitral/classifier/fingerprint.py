"""A hash that tells one classifier from another by all that its answers follow from."""

import hashlib

import torch

from vitral.classifier.classifier import Classifier


def fingerprint(classifier: Classifier) -> str:
    """Return a hash of everything that a classifier's answers follow from."""
    digest = hashlib.sha256(repr((classifier.class_names, classifier.preprocessing, classifier.calibration)).encode())
    digest.update(
        f"{classifier.task.name} {classifier.predictor.describe()}{classifier.predictor.fingerprint}".encode()
    )
    for name, value in classifier.state_dict().items():
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()
