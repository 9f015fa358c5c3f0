"""A budget of seconds."""

from dataclasses import replace
from pathlib import Path

from vitral.studies.paper import scale

SMALL = replace(
    scale.LAPTOP,
    name="small",
    recipe=str(Path(__file__).with_name("small.toml")),
    hours=None,
    vits=(scale.StudyNetwork("vit-mu4", "ViT-mu", ("model=vit-mu4",)),),
    patches=((8, 8), (16, 16)),
    shows="Three steps show nothing at all.",
)
