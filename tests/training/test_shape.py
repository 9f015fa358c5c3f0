"""A network's shape, set beside the recipe: of a run from random weights, whatever names the network, and of no other."""

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import vitral
from tests.cases import every_case
from vitral.cli.main import main
from vitral.errors import DataError, ModelError, RecipeError
from vitral.events import ignore
from vitral.models.catalog import variant
from vitral.models.families import build, count_parameters, create_model
from vitral.training.choose.draft import draft_of
from vitral.training.request import Request
from vitral.training.settings.recipe import build_recipe, load_recipe, network_config

FEW = ("steps=2", "batch_size=4", "workers=0", "precision=fp32")
SMALL = ("depth=2", "width=96", "mlp_width=192", "heads=3")


def settings(*changes: str) -> list[str]:
    return [word for change in changes for word in ("--set", change)]


def test_the_recipe_names_the_network_and_its_shape() -> None:
    recipe = build_recipe({"model": "vit-s16", "depth": 2, "width": 128, "head": {"representation": True}}, "test")
    config = network_config(recipe, 7)
    assert (config.depth, config.dim, config.mlp_dim, config.num_heads) == (2, 128, 1536, 2)
    assert config.representation_size == 128  # the hidden layer of pre-training is as wide as the tokens


@every_case("key", ["depth", "width", "mlp_width", "heads"])
def test_no_shape_is_less_than_one(key: str) -> None:
    with pytest.raises(RecipeError, match=f"impossible '{key}'"):
        load_recipe("pretrain", [f"{key}=0"])


def test_none_is_no_position_embedding_and_of_other_settings_the_networks_own() -> None:
    recipe = load_recipe("pretrain", ["model=vit-ti16", "position=none", "depth=none", "image_size=none"])
    assert (recipe.position, recipe.depth) == ("none", None)
    assert load_recipe("pretrain").changed(["position=none"]).position == "none"
    assert network_config(recipe, 2).position == "none"


def test_rotary_positions_are_dinov3s_and_no_embedding() -> None:
    config = network_config(load_recipe("pretrain", ["model=vit-ti16", "position=rotary"]), 2)
    assert (config.position, config.rotary) == ("none", "dinov3")
    assert config.rotary == variant("dinov3-s16").rotary
    model = build(config, seed=0)
    assert not [name for name, _ in model.named_parameters() if name.startswith("position")]
    assert torch.isfinite(model(torch.zeros(1, 3, *model.image_size))).all()


@every_case("model", ["bit-r50x1", "resnet-18", "t2t-vit-7", "cvt-13", "coatnet-0", "efficientnet-b0"])
def test_a_network_without_such_a_shape_is_refused_before_the_data_are_read(model: str) -> None:
    with pytest.raises(ModelError, match=f"{model} has no 'depth' to set"):
        draft_of(Request("pre-train", "nowhere", model=model, overrides=("depth=2",)))
    with pytest.raises(ModelError, match=f"{model} has no 'depth' to set"):
        draft_of(Request("fine-tune", "nowhere", overrides=(f"model={model}", "depth=2")))


def test_a_recipes_form_of_the_gelu_is_the_networks_or_taken_back_by_name() -> None:
    for recipe in ("mae-vit-l16", "lejepa-vit-s8"):
        assert network_config(load_recipe(recipe), 2).gelu == "exact"
    assert network_config(load_recipe("pretrain", ["model=vit-ti16", "image_size=none"]), 2).gelu == "tanh"
    with pytest.raises(ModelError, match=r"resnet-18 has no 'gelu' to set.*'gelu=none'"):
        network_config(load_recipe("lejepa-vit-s8", ["model=resnet-18"]), 2)
    assert network_config(load_recipe("lejepa-vit-s8", ["model=resnet-18", "gelu=none"]), 2).num_classes == 2
    with pytest.raises(RecipeError, match="impossible 'gelu'.*'tanh', 'exact' or 'quick'"):
        load_recipe("pretrain", ["gelu=fast"])


def test_trained_weights_keep_their_shape(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="trained in its own shape, so 'width' cannot be set; leave it out"):
        draft_of(Request("fine-tune", "photos", source="ViT-B_16.npz", overrides=("width=96",)))
    with pytest.raises(RecipeError, match="'patch_size' cannot be set"):
        draft_of(Request("fine-tune", "photos", source="ViT-B_16.npz", overrides=("patch_size=8",)))
    recipe = tmp_path / "mine.toml"
    recipe.write_text('model = "vit-ti16"\ndepth = 2\n')  # of the run that the weights come from
    draft_of(Request("fine-tune", "photos", source="ViT-B_16.npz", recipe=str(recipe)))


def test_a_run_of_another_shape_is_made_opened_again_and_predicts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["pretrain", "--data", "digits", "--model", "vit-mu16", "--image-size", "32", *settings(*SMALL, *FEW)]
    assert main([*arguments, "--plan", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["network"]["name"] == "ViT with patch_size 16x16, depth 2, width 96, mlp_width 192 and heads 3"
    assert {key: plan["recipe"][key] for key in ("depth", "width", "mlp_width", "heads")} == {
        "depth": 2,
        "width": 96,
        "mlp_width": 192,
        "heads": 3,
    }
    assert main([*arguments, "--out", "run"]) == 0
    classifier = vitral.load("run")
    config = classifier.model.config
    assert (config.depth, config.dim, config.mlp_dim, config.num_heads) == (2, 96, 192, 3)
    assert plan["network"]["parameters"] == count_parameters(classifier.model)
    kept = tomllib.loads((tmp_path / "run" / "recipe.toml").read_text())
    assert (kept["depth"], kept["width"], kept["mlp_width"], kept["heads"]) == (2, 96, 192, 3)
    assert plan["network"]["name"] in (tmp_path / "run" / "classifier" / "README.md").read_text()
    assert network_config(load_recipe("run/recipe.toml"), 10) == config  # of which the same file trains another
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(tmp_path / "one.png")
    capsys.readouterr()
    assert main(["predict", "one.png", "--classifier", "run", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 1


def test_a_network_that_is_named_beside_the_recipe_takes_the_shape_too(tmp_path: Path) -> None:
    overrides = (*FEW, "depth=2", "pooling=gap", "checkpoint.every_steps=1")
    asked: dict[str, Any] = {"image_size": 32, "overrides": overrides, "recipe": "scratch", "listener": ignore}
    result = vitral.finetune("digits", source="vit-mu16", out=tmp_path / "run", **asked)
    own = create_model("vit-mu16").config
    config = vitral.load(tmp_path / "run").model.config
    assert (config.depth, config.pooling, config.dim) == (2, "gap", own.dim)
    assert result.run.plan.origin == "model"
    again = vitral.finetune(out=tmp_path / "run", resume=True, listener=ignore)
    assert (again.run.plan.start, again.run.classifier.model.config.depth) == ("vit-mu16", 2)


def test_a_shape_that_a_named_network_cannot_have_is_refused_before_the_data_are_read() -> None:
    for source in ("resnet-18", "t2t-vit-7"):
        with pytest.raises(ModelError, match=f"{source} has no 'width' to set"):
            vitral.finetune("nowhere", source=source, overrides=["width=96"], listener=ignore)


def test_a_shape_that_no_network_has_which_would_be_chosen_asks_for_a_name() -> None:
    with pytest.raises(ModelError, match=r"too small .* said of conv-vit-16, .* name one, such as .*model=vit-ti16"):
        vitral.finetune("nowhere", overrides=["patch_size=8"], listener=ignore)
    with pytest.raises(DataError, match="no folder 'nowhere'"):
        vitral.finetune("nowhere", overrides=["depth=3"], listener=ignore)


def test_a_shape_holds_for_a_network_that_is_chosen(tmp_path: Path) -> None:
    plan = vitral.plan("digits", overrides=["depth=3", "pooling=map"], out=tmp_path / "run", listener=ignore)
    config = plan.classifier.model.config
    assert (plan.plan.start, config.depth, config.pooling) == ("conv-vit-8", 3, "map")


def test_who_says_a_shape_means_random_weights() -> None:
    for change in SMALL:
        assert not draft_of(Request("fine-tune", "photos", overrides=(change,))).begins_freely
