"""Random networks of every family in every format: refused in one line, or read back with the same logits."""

import copy
import dataclasses
import random
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import vitral
from tests.models.test_contract import CONFIGS, VIT, images
from vitral.errors import ModelError, WeightsError
from vitral.images.preprocessing import PHOTOS
from vitral.models.catalog import VARIANTS
from vitral.models.experts import ExpertsConfig
from vitral.models.families import build, family
from vitral.models.model import Model, ModelConfig
from vitral.models.resnet import StemConfig
from vitral.weights import proof, recognize
from vitral.weights.dialect import Dialect, Reading, Stored, Usage, our_names, reading
from vitral.weights.layouts import Rule, renamed
from vitral.weights.proof import formats_of
from vitral.weights.published import PUBLISHED
from vitral.weights.save import write_weights

NAMES = ("ape", "bee", "cat")
STEM = StemConfig(stages=(1,))
# Values beside each field's own, by family; the fields that are not here keep the value of a small config.
VALUES: dict[str, dict[str, tuple[Any, ...]]] = {
    "vit": {
        "image_size": ((32, 64), (48, 48)),
        "patch_size": ((8, 16), (16, 8)),
        "patch_stride": ((4, 4),),
        "num_heads": (1, 4),
        "position": ("learned-2d", "sincos-2d", "relative", "relative-2d", "none"),
        "pooling": ("gap", "map", "token-gap"),
        "representation_size": (8,),
        "gelu": ("exact", "quick"),
        "registers": (1, 2),
        "layer_scale": (1e-4, 1.0),
        "stem": (STEM,),
        "distilled": (True,),
        "experts": (ExpertsConfig(blocks=(1,), num_experts=2, capacity_factor=4.0),),
        "norm_eps": (1e-5, 1e-2),
        "qkv_bias": (False,),
        "position_resize": ("bicubic", "bicubic-antialias", "bicubic-dinov2"),
        "class_position": (False,),
        "even_depth": (True,),
        "initialization": ("deit", "big_vision"),
        "mlp": ("swiglu", "swiglu-norm"),
        "rotary": ("dinov3", "eva02"),
        "norm_before": (True,),
        "norm_pooled": (True,),
        "patch_bias": (False,),
        "position_at": ("layers", "layers-shared"),
        "head_bias": (-1.0,),
        "stochastic_depth": (0.1,),
    },
    "bit": {"stages": ((1,), (1, 1, 1)), "weight_eps": (1e-8, 1e-2), "norm_eps": (1e-2,), "image_size": ((64, 96),)},
    "resnet": {"stages": ((1, 1, 1), (1, 1, 1, 1, 1)), "bottleneck": (False,), "image_size": ((96, 64),)},
    "t2t": {"tokens": ("transformer",), "num_heads": (1, 4), "image_size": ((64, 96),)},
    "cvt": {"num_heads": ((1, 1, 1),), "gelu": ("exact", "tanh"), "image_size": ((96, 64),)},
    "coatnet": {
        "convention": ("timm",),
        "representation_size": (None, 64),
        "head_dim": (4,),
        "strides": ((2, 2, 2, 1),),
    },
    "efficientnet": {"width": (1.0,), "depth": (1.0,), "lite": (True,), "image_size": ((96, 64),)},
    "tinyvit": {"windows": ((7, 14, 7),), "num_heads": ((2, 3, 8),), "image_size": ((96, 64),)},
}
PLAIN = 6  # times as often as another network: a plain one, of which each format holds some
BASES: list[ModelConfig] = [
    *(config for config in CONFIGS.values() if family(config) in VALUES),
    *[VIT] * PLAIN,
    dataclasses.replace(CONFIGS["efficientnet"], width=1.0, depth=1.0),  # type: ignore[call-arg]
]
NETWORKS = 60
FEW = 12


def draw(generator: random.Random, base: ModelConfig) -> ModelConfig | None:
    """Return a config with a few fields changed; None where these do not go together."""
    values = VALUES[family(base)]
    names = generator.sample(sorted(values), generator.choice((0, 1, 1, 1, 2, 3)) if len(values) > 3 else 1)
    try:
        return dataclasses.replace(base, **{name: generator.choice(values[name]) for name in names})
    except ModelError:
        return None


def network(config: ModelConfig, generator: random.Random) -> Model:
    """Return a network all of whose tensors hold random numbers, those of heads and keys included."""
    model = build(config, seed=generator.randrange(100))
    noise = torch.Generator().manual_seed(generator.randrange(100))
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if tensor.is_floating_point() and name not in model.fixed_tensors():
                tensor.add_(0.1 * torch.rand(tensor.shape, generator=noise))
    return model


def without_values(model: Model) -> Model:
    """Return a network without what some formats have no place for: biases of rotary keys, and of CLIP's projection."""
    dim, rotary = getattr(model.config, "dim", 0), getattr(model.config, "rotary", "none")
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if rotary != "none" and name.endswith("qkv.bias"):
                tensor[dim : 2 * dim] = 0
            if name == "head.bias" and getattr(model.config, "norm_before", False):
                tensor.zero_()
    return model


def logits(model: Any, batch: Tensor) -> Tensor:  # noqa: ANN401  # a network or a classifier
    with torch.inference_mode():
        found: Tensor = model(batch)
    return found


def targets(format_name: str) -> tuple[str, ...]:
    torch_file = "a.pth", "a.safetensors"
    kinds = {
        "transformers": ("folder",),
        "timm": torch_file,
        "big_vision": ("a.npz",),
        "original": ("a.npz", *torch_file),
    }
    return kinds[format_name]


def fault(model: Model, format_name: str, target: Path) -> str | None:
    """Write a network, read it back with and without the description next to it, and return what is wrong.

    Returns:
        What is wrong; an empty text if nothing is; None if the format refuses the network, or such a file.
    """
    try:
        write_weights(model, PHOTOS.with_size(model.image_size), NAMES, target, format_name, overwrite=True)
    except WeightsError as error:
        wrong = "\n" in str(error) or list(target.parent.iterdir())
        return f"refused in more than a line, or left a file: {error}" if wrong else None
    batch = images(model)
    expected = logits(model, batch)
    for description in (True, False):
        if not description:
            target.with_name(f"{target.name}.vitral.json").unlink(missing_ok=True)
        try:
            back = vitral.load(target, image_size=model.image_size)
            difference = float((logits(back, batch) - expected).abs().max())
        except (vitral.VitralError, RuntimeError) as error:
            return f"not read back: {error}"
        if difference > 1e-5 * (1 + float(expected.abs().max())):
            return f"logits differ by {difference}"
    return ""


def faults_of(config: ModelConfig, format_name: str, generator: random.Random, folder: Path) -> list[str | None]:
    """Return what is wrong with each kind of file of a format, of a network as it is and of one that fewer formats refuse."""
    model, found = network(config, generator), []
    for target in targets(format_name):
        for number, written in enumerate((model, without_values(copy.deepcopy(model)))):
            place = folder / f"{format_name}-{target}-{number}"
            place.mkdir(parents=True)
            found.append(fault(written, format_name, place / target))
            if found[-1] is not None:
                break
    return found


@pytest.mark.parametrize("networks", [FEW, pytest.param(NETWORKS, marks=pytest.mark.long)])
def test_a_network_is_refused_or_gives_the_same_logits(networks: int, tmp_path: Path) -> None:
    generator = random.Random(0)
    faults, held = [], set()
    for number in range(networks):
        config = draw(generator, generator.choice(BASES))
        if config is None:
            continue
        for format_name in formats_of(config):
            for wrong in faults_of(config, format_name, generator, tmp_path / str(number)):
                held |= {(family(config), format_name)} if wrong == "" else set()
                faults += [f"{format_name}: {config}: {wrong}"] if wrong else []
    assert not faults, "\n".join([f"{len(faults)} faults", *faults[:10]])
    if networks == NETWORKS:
        assert {format_name for _, format_name in held} == {"original", "big_vision", "timm", "transformers"}
        assert {name for name, _ in held} >= {"vit", "bit", "t2t", "cvt", "resnet"}


EXACT = dataclasses.replace(VIT, gelu="exact", norm_eps=1e-12)
OBLONG = dataclasses.replace(VIT, image_size=(32, 64))
# What a format must hold, so that refusing everything is no way out.
HELD: list[tuple[ModelConfig, str]] = [
    *((OBLONG, name) for name in ("original", "big_vision", "timm", "transformers")),
    *(
        (dataclasses.replace(EXACT, **changes), "transformers")
        for changes in ({}, {"gelu": "quick"}, {"distilled": True})
    ),
    *((EXACT, name) for name in ("original", "timm")),
    (dataclasses.replace(VIT, norm_eps=1e-12), "original"),
    (dataclasses.replace(VIT, class_position=False), "big_vision"),
    (dataclasses.replace(VIT, position="sincos-2d", pooling="gap", image_size=(48, 32)), "big_vision"),
    (dataclasses.replace(VIT, gelu="quick", qkv_bias=False), "timm"),
    (dataclasses.replace(CONFIGS["bit"], weight_eps=1e-2), "transformers"),  # type: ignore[call-arg]
    (dataclasses.replace(CONFIGS["bit"], weight_eps=1e-2), "original"),  # type: ignore[call-arg]
    (CONFIGS["dinov2-registers"], "transformers"),
    (dataclasses.replace(CONFIGS["dinov2"], image_size=(48, 32)), "original"),
]


def test_what_a_format_can_say_is_not_refused(tmp_path: Path) -> None:
    found = [
        faults_of(config, format_name, random.Random(number), tmp_path / str(number))
        for number, (config, format_name) in enumerate(HELD)
    ]
    assert [case for case, wrong in zip(HELD, found, strict=True) if "" not in wrong or set(wrong) - {"", None}] == []


# Published in a format whose library computes with other parts than those that we write.
OTHERWISE = {("vit", "original"), ("cvt", "transformers")}


@pytest.mark.long
def test_published_networks_are_written_in_the_formats_that_they_are_published_in() -> None:
    published = {(name, format_name) for format_name, names in PUBLISHED.items() for name in names}
    families = {(name, format_name): (family(VARIANTS[name]), format_name) for name, format_name in published}
    refused = []
    for name, format_name in sorted(published):
        if families[name, format_name] not in OTHERWISE:
            try:
                proof.prove(VARIANTS[name], format_name)
            except WeightsError as error:
                refused.append(f"{name}: {error}")
    assert refused == []


def test_another_programs_comment_is_not_ours(tmp_path: Path) -> None:
    path = write_weights(build(VIT), PHOTOS.with_size(32), NAMES, tmp_path / "a.npz", "original").path
    path.with_name("a.npz.vitral.json").unlink()
    for comment in (b"written by hand", b"vitral", b""):
        with zipfile.ZipFile(path, "a") as archive:
            archive.comment = comment
        assert vitral.load(path).model.num_classes == 3
    for comment in (b"vitral []", b"vitral {}", b'vitral {"architecture": 3}', b"vitral \xff"):
        with zipfile.ZipFile(path, "a") as archive:
            archive.comment = comment
        with pytest.raises(WeightsError, match=r"a\.npz") as refused:
            vitral.load(path)
        assert "\n" not in str(refused.value)


def test_a_format_is_one_dialect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(stored: Stored) -> Reading:
        size, _ = stored.image(stored.shapes["toy.position.embedding"][1] - 1, (8, 8))
        depth, classes = stored.count(r"toy[.]encoder[.](\d+)[.]"), stored.shapes["toy.head.bias"][0]
        config = dataclasses.replace(VIT, image_size=size, depth=depth, num_classes=classes)
        return reading(stored, config, rules(config), Usage(PHOTOS))

    def rules(config: ModelConfig) -> list[Rule]:
        return renamed(our_names(config), [("^", "toy.")])

    toy = Dialect("toy", "vit", lambda stored: "toy.head.bias" in stored.shapes, read, rules, ("num_heads",))
    for room in (recognize, proof):
        monkeypatch.setattr(room, "DIALECTS", (toy, *recognize.DIALECTS))
    held = [{}, {"depth": 3}, {"num_classes": 5}, {"image_size": (16, 64)}, {"num_heads": 4}]
    for number, changes in enumerate(held):
        model = network(dataclasses.replace(VIT, **changes), random.Random(number))  # type: ignore[arg-type]
        names = [str(index) for index in range(model.num_classes)]
        write_weights(model, PHOTOS.with_size(model.image_size), names, tmp_path / f"{number}.pth", "toy")
        (tmp_path / f"{number}.pth.vitral.json").unlink()
        assert torch.equal(logits(vitral.load(tmp_path / f"{number}.pth"), images(model)), logits(model, images(model)))
    for changes, message in (({"registers": 1}, "cannot hold registers"), ({"dim": 64}, "cannot hold dim 64")):
        with pytest.raises(WeightsError, match=message):
            proof.prove(dataclasses.replace(VIT, **changes), "toy")  # type: ignore[arg-type]
