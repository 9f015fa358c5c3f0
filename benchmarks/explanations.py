"""How faithful the maps of each method are to a classifier, on photos of your own: the table of docs/explanations.md.

    python benchmarks/explanations.py CLASSIFIER PHOTOS [--images 16]

Each photo's answer is explained by every method that the network allows, and the map is scored by deletion (lower is more
faithful) and insertion (higher is; arXiv 1806.07421), 33 passes each. "Brightest" is the share of the whole map that its
largest cell has: high-norm tokens, in which a network without registers keeps what it knows of the whole image (arXiv
2309.16588), show as one bright cell. "Clipped" cuts the map at the value that 95% of its cells stay below; "random" is a map of
noise: what scattered tiles alone give. Means over the photos, plus or minus the standard error.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import Float32

from vitral.classifier.classifier import Classifier
from vitral.classifier.load import load
from vitral.data.image_stream import list_unlabelled
from vitral.errors import ModelError
from vitral.events import ignore
from vitral.explanation.faithfulness import faithfulness
from vitral.explanation.methods import Method, compute
from vitral.models.model import Images

BELOW = 95  # per cent of the cells

Map = Float32[np.ndarray, "rows columns"]
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


def main() -> None:
    """Print one line a method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("classifier")
    parser.add_argument("photos", type=Path)
    parser.add_argument("--images", type=int, default=16)
    given = parser.parse_args()
    classifier = load(given.classifier, listener=ignore)
    listed = list_unlabelled(str(given.photos))
    chosen = np.linspace(0, len(listed) - 1, min(given.images, len(listed))).round().astype(int).tolist()
    images = [classifier.preprocessing(listed[index].read())[None] for index in chosen]
    print("| method | deletion | insertion | insertion - deletion | brightest | seconds a map |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, explain in methods(classifier).items():
        try:
            rows = np.array(measure(classifier, images, explain))
        except ModelError as error:
            print(f"{name}: {error}")
            continue
        error = (rows[:, 1] - rows[:, 0]).std(ddof=1) / np.sqrt(len(rows))
        deletion, insertion, brightest, seconds = rows.mean(axis=0)
        gain = f"{insertion - deletion:.3f} ± {error:.3f}"
        print(f"| {name} | {deletion:.3f} | {insertion:.3f} | {gain} | {brightest:.1%} | {seconds:.2f} |", flush=True)


if __name__ == "__main__":
    main()
