from tests.training.choose.situations import FACTS, LAPTOP, changed, planned
from vitral.images.augment import Augmentation
from vitral.tasks.instances import INSTANCES
from vitral.training.facts import Facts

JITTERED = Augmentation(crop="scale-jitter", scales=(0.5, 2.0))


def _facts(**values: object) -> Facts:
    given = {"images": 500, "classes": 1, "task": INSTANCES, "augmentation": JITTERED, "side": 256.0, **values}
    return changed(FACTS, **given)


def _size(seconds: float, **values: object) -> int:
    size = planned(_facts(**values), time=seconds).recipe.image_size
    assert size is not None
    return size


def test_photos_are_never_so_small_that_small_objects_vanish() -> None:
    assert _size(60.0, small_regions=0.03) == 256
    assert _size(60.0, small_regions=0.05) == 160
    assert _size(60.0, small_regions=0.5) == _size(60.0, small_regions=None) == 128
    assert _size(60.0, small_regions=0.005) == 256  # and never much larger than they are


def test_with_time_they_are_seen_as_large_as_they_are() -> None:
    assert _size(36000.0, small_regions=0.5) == 256
    assert _size(36000.0, small_regions=0.5, side=900.0) > 256


def test_a_transformer_is_adapted_where_there_is_time_for_many_passes() -> None:
    facts = changed(LAPTOP, images=500, classes=1, task=INSTANCES, augmentation=JITTERED, side=256.0)

    def method(time: float, *overrides: str) -> str:
        return planned(facts, time=time, source="ViT-Ti_16.npz", overrides=overrides).recipe.adaptation.method

    assert [method(60.0), method(36000.0)] == ["probe", "full"]
    assert method(60.0, "adaptation.method=lora") == "lora"
    assert method(60.0, "adaptation.frozen_blocks=2") == "full"
