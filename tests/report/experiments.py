"""A study of the paper's with made-up results, for the pages' tests."""

import numpy as np

from vitral.report.chart import Axis, Chart, Point, Published, Series
from vitral.report.experiment_page import ExperimentPage
from vitral.report.study import Failure, Study, StudyArm
from vitral.tasks.single_label import SingleLabel

SIZES = (500, 2_000, 8_000, 32_000)
LEVELS = {"ViT-Ti/4": (0.31, 0.42, 0.55, 0.66), "ResNet-8": (0.38, 0.49, 0.58, 0.64), "hybrid": (0.36, 0.5, 0.61, 0.69)}


def experiment(evil: str = "", *, paper_chart: bool = True) -> ExperimentPage:
    """Make a page of three architectures on four sizes of the data, three seeds each; `evil` is in every text of a user's."""
    random = np.random.default_rng(0)
    runs = {
        (name, size): level + random.normal(0, 0.012, 3)
        for name, levels in LEVELS.items()
        for size, level in zip(SIZES, levels, strict=True)
    }
    arms = tuple(
        StudyArm(f"{name}, {size:,} images{evil}", tuple({"top1": value, "steps": 2000.0} for value in values.tolist()))
        for (name, size), values in runs.items()
    )
    ours = tuple(
        Series(
            name + evil,
            tuple(Point(size, float(runs[name, size].mean()), float(runs[name, size].std(ddof=1))) for size in SIZES),
        )
        for name in LEVELS
    )
    axes = Axis("images for training", log=True), Axis("top-1", percent=True)
    theirs = Series("ViT-B/32", (Point(1.3e6, 0.7338), Point(14e6, 0.8128), Point(303e6, 0.8073, label="7 epochs")))
    return ExperimentPage(
        study=Study(
            f"Data size{evil}",
            SingleLabel.headline,
            arms,
            (Failure("ViT-Ti-4-32000-2", f"the loss is no number{evil}"),),
            left=2,
        ),
        question=f"Where does ViT overtake the ResNet as the training data grow?{evil}",
        paper=Published("Figure 3 (section 4.3)", "Fine-tuned at 384 pixels.", Chart("The paper", *axes, (theirs,)))
        if paper_chart
        else Published("Figure 8 (appendix D.2)", "Depth helped most. The values are only in the drawing."),
        ours=Chart(f"Ours{evil}", *axes, ours, note="Equal steps for every size."),
        shows="Sizes of thousands of images show the order of the architectures, not the paper's levels.",
        conclusion=f"ViT overtook the ResNet between 8,000 and 32,000 images.{evil}",
        command=f"vitral study data-size --data cifar10{evil} --out runs/data-size --time 1h",
        machine=f"2 cores of an x86 processor{evil}",
        seconds=3240,
    )
