"""Fine-tuning at a higher resolution than pre-training, with resized position embeddings (paper section 3.2)."""

import itertools
from collections.abc import Sequence

from vitral.report.chart import Axis
from vitral.studies.paper.experiment import Experiment, Results, Trial, against, by_series
from vitral.studies.paper.scale import Scale

PRETRAINING = "pretraining"
TUNED = "pre-trained small, fine-tuned"
SCRATCH = "trained from scratch"


def _trials(scale: Scale) -> Sequence[Trial]:
    network, small = scale.vits[-1].changes, scale.sizes[0]
    return (
        Trial(PRETRAINING, "", f"pre-training at {small} pixels", changes=_sized(small, *network), kind="pre-train"),
        *(
            Trial(
                f"finetune-{size}",
                TUNED,
                f"fine-tuned at {size} pixels",
                float(size),
                _sized(size),
                tuned=True,
                after=PRETRAINING,
            )
            for size in scale.sizes
        ),
        *(
            Trial(f"scratch-{size}", SCRATCH, f"from scratch at {size} pixels", float(size), _sized(size, *network))
            for size in scale.sizes
        ),
    )


def _sized(size: int, *changes: str) -> tuple[str, ...]:
    return (*changes, f"image_size={size}")


def _conclude(results: Results) -> str:
    series = by_series(results)
    tuned, scratch = series.get(TUNED, []), series.get(SCRATCH, [])
    sentences = []
    if len(tuned) > 1:
        sentences.append(f"What resolution gives to the same weights: {against(tuned[-1], tuned[0])}.")
    for result, other in itertools.product(tuned, scratch):
        if other.trial.at == result.trial.at:
            more = result.facts.flops / other.facts.flops  # two trainings take more than one
            cost = f"with {more:.2g} times the operations of training"
            sentences.append(f"At {result.trial.at:g} pixels, {against(result, other)}, {cost}.")
    return " ".join(sentences)


RESOLUTION = Experiment(
    "resolution",
    "Fine-tuning at a higher resolution",
    "What do more pixels give to weights that were pre-trained with fewer?",
    Axis("pixels a side in fine-tuning"),
    _trials,
    _conclude,
)
