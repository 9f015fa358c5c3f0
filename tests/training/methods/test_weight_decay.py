"""What a method trains outside the network decays as its authors' code decays it: a row for every method.

A new module of a method needs a row here, with the place in the original.
"""

from pathlib import Path
from typing import Any

from torch import nn

from tests.cases import every_case
from tests.training.conftest import CONFIG
from tests.training.methods.test_every_method import changes
from vitral.images.preprocessing import PHOTOS
from vitral.models.families import build
from vitral.tasks.single_label import SINGLE_LABEL
from vitral.training.methods.method import Context, Method, build_method
from vitral.training.settings.methods import METHODS
from vitral.training.settings.recipe import build_recipe, load_recipe

DECAY = 0.1
KERNELS = "kernels"
# By method: the recipe's `decay_on`, what decays of the parameters outside the network, and what does not.
TABLE: dict[str, tuple[str, set[str], set[str]]] = {
    "supervised": (KERNELS, set(), set()),
    "distillation": (KERNELS, set(), set()),
    "noisy-student": (KERNELS, set(), set()),
    # Two networks, each with an optimizer of its own; common_utils.add_weight_decay spares no network of the two.
    "meta-pseudo-labels": (KERNELS, set(), set()),
    # No code is published; heads are kernels in vision_transformer and big_vision, tokens are none.
    "masked-patches": (KERNELS, {"colour_head.weight"}, {"colour_head.bias", "mask"}),
    "procedural": (KERNELS, {"head.weight"}, {"head.bias"}),
    # Ours; the field's distillers give their projections to the same groups as the student.
    "feature-distillation": (KERNELS, {"pooled.weight", "patches.weight"}, {"pooled.bias", "patches.bias"}),
    # Alibaba-MIIL/ImageNet21K, add_weight_decay of general_helper_functions.py: all labels are one layer.
    "semantic-softmax": (KERNELS, {"others.weight"}, {"others.bias"}),
    # facebookresearch/mae, main_pretrain.py: timm's add_weight_decay over encoder and decoder, without a list to skip.
    "masked-autoencoder": (
        "kernels-and-tokens",
        {
            *("mask_token", "embedding.weight", "prediction.weight"),
            *(f"decoder.0.{name}.weight" for name in ("attention.qkv", "attention.out", "mlp.fc1", "mlp.fc2")),
        },
        {
            *("embedding.bias", "prediction.bias", "norm.weight", "norm.bias"),
            *(f"decoder.0.{name}.bias" for name in ("attention.qkv", "attention.out", "mlp.fc1", "mlp.fc2")),
            *(f"decoder.0.{norm}.{name}" for norm in ("norm1", "norm2") for name in ("weight", "bias")),
        },
    ),
    # rbalestr-lab/lejepa, MINIMAL.md: one group of all parameters of backbone and projector.
    "lejepa": (
        "all",
        {
            f"{part}.{number}.{name}"
            for part, count in (("layers", 3), ("norms", 2))
            for number in range(count)
            for name in ("weight", "bias")
        },
        set(),
    ),
}


def made(name: str, tmp_path: Path, **optimizer: Any) -> Method:  # noqa: ANN401
    settings = {} if name == "supervised" else changes(name, tmp_path)
    recipe = build_recipe({"optimizer": {"weight_decay": DECAY, **optimizer}, "steps": 10, **settings}, "test")
    context = Context(tuple(map(str, range(10))), PHOTOS.normalize)
    return build_method(build(CONFIG, seed=0).train(), recipe, SINGLE_LABEL, context)


def decays(method: Method) -> dict[str, float]:
    """Return the weight decay of each parameter of a method's module that an optimizer has, by its name there."""
    groups = [group for optimizer in method.optimizers() for group in optimizer.param_groups]
    of = {parameter: group["weight_decay"] for group in groups for parameter in group["params"]}
    return {name: of[parameter] for name, parameter in method.module.named_parameters() if parameter in of}


def outside(method: Method) -> set[str]:
    teacher = getattr(method.module, "teacher", None)
    networks = [method.network, *([teacher] if isinstance(teacher, nn.Module) else [])]
    inside = {parameter for network in networks for parameter in network.parameters()}
    return {name for name, parameter in method.module.named_parameters() if parameter not in inside}


def test_every_method_has_a_row() -> None:
    # Queries train nothing outside of their network; tests/training/methods/test_mask_queries.py holds their rates.
    assert {*TABLE, "mask-queries"} == METHODS.keys()


@every_case("name", TABLE)
def test_what_a_method_trains_outside_the_network_decays_as_its_original(name: str, tmp_path: Path) -> None:
    decay_on, decayed, spared = TABLE[name]
    method = made(name, tmp_path, decay_on=decay_on)
    found = decays(method)
    assert {key: found[key] for key in outside(method)} == dict.fromkeys(decayed, DECAY) | dict.fromkeys(spared, 0.0)


@every_case("name", TABLE)
def test_on_all_nothing_is_spared_and_on_kernels_every_matrix_decays(name: str, tmp_path: Path) -> None:
    assert set(decays(made(name, tmp_path, decay_on="all")).values()) == {DECAY}
    method = made(name, tmp_path, decay_on=KERNELS)
    matrices = {name for name, layer in method.module.named_modules() if isinstance(layer, nn.Linear | nn.Conv2d)}
    for key, decay in decays(method).items():
        layer, _, kind = key.rpartition(".")
        assert decay == (DECAY if layer in matrices and kind == "weight" else 0.0), key


def test_maes_whole_module_decays_by_the_rule_of_its_code(tmp_path: Path) -> None:
    decay_on = load_recipe("mae-vit-l16").optimizer.decay_on
    method = made("masked-autoencoder", tmp_path, decay_on=decay_on)
    found = decays(method)
    for name, parameter in method.module.named_parameters():
        spared = parameter.ndim == 1 or name.endswith(".bias") or "position" in name  # the original's do not learn
        assert found[name] == (0.0 if spared else DECAY), name
    assert found["network.class_token"] == found["mask_token"] == DECAY


@every_case("name", ["mae-vit-l16", "lejepa-vit-s8"])
def test_the_recipes_decay_what_the_authors_do(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.optimizer.decay_on == TABLE[recipe.method.name][0]
