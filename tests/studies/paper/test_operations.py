"""Operations of a run and hours on a GPU, against figures that were worked out by hand and published ones."""

import pytest

from vitral.errors import ModelError
from vitral.models.catalog import variant
from vitral.studies.paper.operations import H200, Gpu, Operations, operations_of
from vitral.training.settings.recipe import build_recipe, load_recipe, network_config

A100 = Gpu("A100", 312e12, 0.304, "900 images/s a GPU of ViT-B/16 on 8 A100 (NVIDIA/JAX-Toolbox)")
B16 = 17_563_828_224  # multiply-accumulates of ViT-B/16 at 224 pixels


def test_operations_and_hours_worked_by_hand() -> None:
    run = Operations(macs=1_000_000_000, images=3_600_000)
    assert run.total == 21_600_000_000_000_000  # 6 a multiply-accumulate
    assert run.hours(share=0.5) == pytest.approx(21.6e15 / (0.5 * 989e12) / 3600)
    assert run.hours(A100, share=0.5) == pytest.approx(0.0384615, rel=1e-5)  # 21.6e15 / 156e12 = 138.46 s
    assert run.hours(A100, share=0.5, count=8) == pytest.approx(0.0384615 / 8, rel=1e-5)
    assert Operations(1, 1, passes=2).total == 12


def test_hours_agree_with_published_speeds() -> None:
    million = Operations(B16, 1_000_000)
    for share, published in ((0.35, 3285), (0.45, 4223), (0.55, 5162)):  # images a second at shares of 989 TFLOP/s
        assert 1_000_000 / (3600 * million.hours(H200, share=share)) == pytest.approx(published, rel=1e-3)
    assert 1_000_000 / (3600 * million.hours()) == pytest.approx(2119, rel=2e-3)
    assert 1_000_000 / (3600 * million.hours(A100)) == pytest.approx(900, rel=2e-3)


def test_a_recipes_operations_are_those_of_its_length_and_its_size() -> None:
    recipe = load_recipe("vit-b16-imagenet")
    run = operations_of(network_config(recipe, 1000), recipe, 1_281_167)
    assert run.macs == B16 + 768 * 768  # and the hidden layer before the head
    assert run.images == pytest.approx(300 * 1_281_167, rel=1e-4)
    assert run.hours(count=8, share=0.4) == pytest.approx(3.56, abs=0.01)
    at_384 = operations_of(variant("vit-b16"), recipe.changed(["image_size=384", "steps=10"]), 1_281_167)
    assert (at_384.macs, at_384.images) == (55_484_350_464, 40_960)


def test_a_second_pass_and_another_shape_count() -> None:
    plain = build_recipe({"model": "vit-s16", "steps": 5, "batch_size": 8, "depth": 6}, "test")
    sam = plain.changed(["optimizer.sam_rho=0.1"])
    config = network_config(plain, 1000)
    once, twice = (operations_of(config, recipe, 100) for recipe in (plain, sam))
    assert (once.images, twice.total) == (40, 2 * once.total)
    whole = operations_of(variant("vit-s16"), plain, 100)
    head, patches = 384 * 1000, 196 * 768 * 384
    assert 2 * (once.macs - head - patches) == whole.macs - head - patches


def test_a_size_that_the_network_cannot_take_is_refused() -> None:
    with pytest.raises(ModelError, match="is not divided by the patch size 16"):
        operations_of(variant("vit-b16"), load_recipe("vit-b16-imagenet", ["image_size=50"]), 100)
