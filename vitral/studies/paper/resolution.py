"""Fine-tuning at a higher resolution than pre-training, with resized position embeddings (paper section 3.2)."""

from collections.abc import Sequence

from vitral.report.chart import Axis
from vitral.studies.paper.experiment import Experiment, Results, Trial, TrialResult, against, by_series
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
    sentences += [
        f"At {result.trial.at:g} pixels, {_with_cost(result, other)}."
        for result in tuned
        for other in scratch
        if other.trial.at == result.trial.at
    ]
    return " ".join(sentences)


def _with_cost(tuned: TrialResult, scratch: TrialResult) -> str:
    """Compare accuracy and operations of training: two trainings take more than one."""
    more = tuned.facts.flops / scratch.facts.flops
    return f"{against(tuned, scratch)}, with {more:.2g} times the operations of training"


RESOLUTION = Experiment(
    "resolution",
    "Fine-tuning at a higher resolution",
    "What do more pixels give to weights that were pre-trained with fewer?",
    Axis("pixels a side in fine-tuning"),
    _trials,
    _conclude,
)
