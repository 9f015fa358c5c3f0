"""How faithful the maps of each method are to a classifier, on photos of your own: the table of docs/explanations.md.

    python benchmarks/explanations.py CLASSIFIER PHOTOS [--images 16] [--outlines FOLDER]

Each photo's answer is explained by every method that the network allows, and the map is scored by deletion (lower is more
faithful) and insertion (higher is; arXiv 1806.07421), 33 passes each. "Brightest" is the share of the whole map that its
largest cell has: high-norm tokens, in which a network without registers keeps what it knows of the whole image (arXiv
2309.16588), show as one bright cell. "Clipped" cuts the map at the value that 95% of its cells stay below; "random" is a map of
noise: what scattered tiles alone give. Means over the photos, plus or minus the standard error.

With the outlines of the objects, black and white images whose names begin with their photos', maps are scored by these instead:
the probability that a cell of the object has more of the map than one beside it (the area under the ROC curve, 0.5 for noise),
the share of the map that lies on the object, and that of photos whose brightest cell does.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float32
from sklearn.metrics import roc_auc_score
from torch.nn import functional

from vitral.classifier.classifier import Classifier
from vitral.classifier.load import load
from vitral.data.image_stream import list_unlabelled
from vitral.errors import ModelError
from vitral.events import ignore
from vitral.explanation.faithfulness import faithfulness
from vitral.explanation.methods import Method, compute
from vitral.images.decode import Pixels, read_image
from vitral.models.model import Images

BELOW = 95  # per cent of the cells

Map = Float32[np.ndarray, "rows columns"]
Shares = Float32[np.ndarray, "rows columns"]  # of each cell that the object covers
Explain = Callable[[Images], Map]


def methods(classifier: Classifier) -> dict[str, Explain]:
    """Return each method's name with what gives the map of a prepared image."""
    random = np.random.default_rng(0)

    def by(method: Method, images: Images) -> Map:
        return compute(classifier.predictor, images, method).values[0].numpy()

    def clipped(method: Method, images: Images) -> Map:
        values = by(method, images)
        return np.minimum(values, np.percentile(values, BELOW)).astype(np.float32)

    return {
        "attention of the last layer": partial(by, "attention"),
        "rollout": partial(by, "attention rollout"),
        "rollout, clipped": partial(clipped, "attention rollout"),
        "relevance": partial(by, "class-specific relevance"),
        "relevance, clipped": partial(clipped, "class-specific relevance"),
        "Grad-CAM": partial(by, "Grad-CAM"),
        "random": lambda images: random.random((16, 16), dtype=np.float32),
    }


def measure(classifier: Classifier, images: list[Images], explain: Explain) -> list[tuple[float, float, float, float]]:
    """Return deletion, insertion, the brightest cell's share and seconds of each map; a map of one value has none."""
    rows = []
    for image in images:
        begun = time.perf_counter()
        values = explain(image)
        seconds = time.perf_counter() - begun
        answer = int(classifier.probabilities(image)[0].argmax())
        scores = faithfulness(classifier.probabilities, image[0], values, answer)
        if scores is not None:
            brightest = float(values.max() / values.sum())
            rows.append((scores.deletion, scores.insertion, brightest, seconds))
    return rows


def covered(classifier: Classifier, outline: Pixels, cells: tuple[int, int]) -> Shares:
    """Return how much of each cell an object covers, its outline brought to the network as its photo is."""
    mean, std = (
        torch.tensor(values)[:, None, None] for values in (classifier.preprocessing.mean, classifier.preprocessing.std)
    )
    inside = classifier.preprocessing(outline) * std + mean
    return functional.adaptive_avg_pool2d(inside[:1], cells)[0].clamp(0, 1).numpy()


def on_object(values: Map, shares: Shares) -> tuple[float, float, float]:
    """Return the area under the ROC curve, the share of the map on the object, and whether its brightest cell is there."""
    inside: Bool[np.ndarray, " cells"] = shares.ravel() > 0.5
    flat = values.ravel()
    return (
        float(roc_auc_score(inside, flat)),
        float((values * shares).sum() / values.sum()),
        float(inside[flat.argmax()]),
    )


def point(classifier: Classifier, photos: list[tuple[Images, Path]]) -> None:
    """Print one line a method: how well its maps lie on the objects."""
    print("| method | object before the rest (AUROC) | share on the object | brightest cell on it |")
    print("|---|---:|---:|---:|")
    for name, explain in methods(classifier).items():
        rows = []
        for image, outline in photos:
            values = explain(image)
            rows.append(on_object(values, covered(classifier, read_image(outline), (values.shape[0], values.shape[1]))))
        area, share, brightest = np.array(rows).mean(axis=0)
        error = np.array(rows)[:, 0].std(ddof=1) / np.sqrt(len(rows))
        print(f"| {name} | {area:.3f} ± {error:.3f} | {share:.1%} | {brightest:.1%} |", flush=True)


def main() -> None:
    """Print one line a method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("classifier")
    parser.add_argument("photos", type=Path)
    parser.add_argument("--images", type=int, default=16)
    parser.add_argument("--outlines", type=Path)
    given = parser.parse_args()
    classifier = load(given.classifier, listener=ignore)
    listed = list_unlabelled(str(given.photos))
    chosen = np.linspace(0, len(listed) - 1, min(given.images, len(listed))).round().astype(int).tolist()
    images = [classifier.preprocessing(listed[index].read())[None] for index in chosen]
    if given.outlines is not None:
        stems = [Path(listed[index].name).stem for index in chosen]
        outlines = [min(given.outlines.glob(f"{stem}*")) for stem in stems]
        point(classifier, list(zip(images, outlines, strict=True)))
        return
    print("| method | deletion | insertion | insertion - deletion | brightest | seconds a map |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, explain in methods(classifier).items():
        try:
            rows = np.array(measure(classifier, images, explain))
        except ModelError as error:
            print(f"{name}: {error}")
            continue
        spread = (rows[:, 1] - rows[:, 0]).std(ddof=1) / np.sqrt(len(rows))
        deletion, insertion, brightest, seconds = rows.mean(axis=0)
        gain = f"{insertion - deletion:.3f} ± {spread:.3f}"
        print(f"| {name} | {deletion:.3f} | {insertion:.3f} | {gain} | {brightest:.1%} | {seconds:.2f} |", flush=True)


if __name__ == "__main__":
    main()
