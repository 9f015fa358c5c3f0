"""Fine-tuning at a higher resolution than pre-training, with resized position embeddings (paper section 3.2)."""

from collections.abc import Sequence

from vitral.report.chart import Axis
from vitral.studies.paper.experiment import Experiment, Result, Results, Trial, against, by_series
from vitral.studies.paper.scale import Scale

PRETRAINING, TUNED, SCRATCH = "pretraining", "pre-trained small, fine-tuned", "trained from scratch"


def _trials(scale: Scale) -> Sequence[Trial]:
    network, small = scale.vits[-1].changes, scale.sizes[0]
    return (
        Trial(
            PRETRAINING,
            "",
            f"pre-training at {small} pixels",
            changes=(*network, f"image_size={small}"),
            kind="pre-train",
        ),
        *(
            Trial(
                f"finetune-{size}",
                TUNED,
                f"fine-tuned at {size} pixels",
                float(size),
                (f"image_size={size}",),
                tuned=True,
                after=PRETRAINING,
            )
            for size in scale.sizes
        ),
        *(
            Trial(
                f"scratch-{size}",
                SCRATCH,
                f"from scratch at {size} pixels",
                float(size),
                (*network, f"image_size={size}"),
            )
            for size in scale.sizes
        ),
    )


def _conclude(results: Results) -> str:
    series = by_series(results)
    tuned, scratch = series.get(TUNED, []), series.get(SCRATCH, [])
    said = []
    if len(tuned) > 1:
        said.append(f"What resolution gives to the same weights: {against(tuned[-1], tuned[0])}.")
    for one in tuned:
        same = [other for other in scratch if other.trial.at == one.trial.at]
        said += [f"At {one.trial.at:g} pixels, {_with_cost(one, other)}." for other in same]
    return " ".join(said)


def _with_cost(tuned: Result, scratch: Result) -> str:
    """Compare, and say how many operations the weights have had: two trainings are more than one."""
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
