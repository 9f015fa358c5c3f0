"""What the tests plan for: a thousand images of ten classes, ViT-Ti/16 and a laptop's CPU, or a large GPU."""

from dataclasses import replace

from vitral.images.augment import Augmentation
from vitral.models.catalog import variant
from vitral.tasks.single_label import SINGLE_LABEL
from vitral.training.choose.recipe import Situation
from vitral.training.facts import DataFacts, Facts, MachineFacts, WeightsFacts

DATA = DataFacts(
    images=1000, an_epoch=1000, classes=10, task=SINGLE_LABEL, augmentation=Augmentation(flip=False), side=400.0
)
MACHINE = MachineFacts(macs_per_second=5e10)
FACTS = Facts(DATA, MACHINE)
WEIGHTS = WeightsFacts(variant("vit-ti16"), parameters=5_500_000, macs=1_250_000_000, blocks=12, low_rank=True)
LAPTOP = Situation(
    images=1000,
    classes=10,
    side=400.0,
    parameters=5_500_000,
    macs=1_250_000_000,
    low_rank=True,
    own_size=224,
    one_size=False,
    gpu_bytes=None,
    budget_seconds=None,
)
SERVER = replace(LAPTOP, gpu_bytes=80 << 30)
