"""The paper's experiments by name."""

from vitral.studies.paper.data_size import DATA_SIZE
from vitral.studies.paper.head import HEAD
from vitral.studies.paper.optimizer import OPTIMIZER
from vitral.studies.paper.patches import PATCHES
from vitral.studies.paper.position import POSITION
from vitral.studies.paper.pretraining import SELF_SUPERVISION, STARTS
from vitral.studies.paper.resolution import RESOLUTION
from vitral.studies.paper.scaling import SCALING
from vitral.studies.paper.shapes import SHAPES

_LISTED = (DATA_SIZE, SCALING, SHAPES, PATCHES, POSITION, HEAD, OPTIMIZER, RESOLUTION, SELF_SUPERVISION, STARTS)
EXPERIMENTS = {experiment.name: experiment for experiment in _LISTED}
