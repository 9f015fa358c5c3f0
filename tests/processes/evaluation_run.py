"""What the processes of a job compute together of sources of several sizes."""

from pathlib import Path

import torch
from torch import Tensor

from tests.conftest import TINY
from vitral import distributed
from vitral.classifier.classifier import Classifier
from vitral.data.generated import open_digits
from vitral.data.subset import Subset
from vitral.evaluation.baselines import extract_features
from vitral.evaluation.evaluate import predict_probabilities
from vitral.images.preprocessing import Preprocessing
from vitral.models.families import build

BATCH_SIZE = 2
SIZES = (1, 4, 5)  # of two processes the second has none, as many as the first, and none in the last round


def rows(count: int) -> dict[str, Tensor]:
    """Return what this process knows after the evaluation of some images."""
    source = Subset(open_digits().splits["validation"], range(count))
    model = build(TINY, seed=0)
    torch.nn.init.normal_(model.head.weight, generator=torch.Generator().manual_seed(0))
    classifier = Classifier(model, Preprocessing(image_size=(16, 16)))
    probabilities, labels = predict_probabilities(classifier, source, batch_size=BATCH_SIZE)
    features, _ = extract_features(classifier, source, batch_size=BATCH_SIZE)
    return {"probabilities": probabilities, "labels": labels, "features": features}


def main(folder: Path) -> int:
    """Write what this process ends with."""
    torch.set_num_threads(1)
    distributed.join()
    for count in SIZES:
        torch.save(rows(count), folder / f"{count}-{distributed.rank()}.pt")
    distributed.leave()
    return 0
