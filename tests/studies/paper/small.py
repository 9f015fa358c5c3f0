"""A budget of seconds, and a process that takes part in its study."""

from dataclasses import replace
from pathlib import Path

from vitral.events import ignore
from vitral.studies.paper import scale
from vitral.studies.paper.run import study

SMALL = replace(
    scale.LAPTOP,
    name="small",
    recipe=str(Path(__file__).with_name("small.toml")),
    hours=None,
    vits=(scale.StudyNetwork("vit-mu4", "ViT-mu", ("model=vit-mu4",)),),
    patches=((8, 8), (16, 16)),
    shows="Three steps show nothing at all.",
)


def small_study(folder: Path) -> None:
    """Take part in the study of patches."""
    scale.SCALES[SMALL.name] = SMALL
    study("patches", "digits", budget=SMALL.name, runs=2, out=folder, listener=ignore)
