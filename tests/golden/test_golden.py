"""Our networks against logits that the original JAX code computed."""

import argparse
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import vitral
from tests.golden.reference import CASES, FOLDER, images, read_case, weights
from vitral.models.position import resize_position_embedding
from vitral.models.t2t import T2TViT, sinusoid_table

TOLERANCE = 1e-5  # of the logits' standard deviation, float32
DEEP_TOLERANCE = 1e-4  # the same, of deep convolutional networks
TINY = "testing@32"
STATE_DICTS = ("t2t", "cvt", "efficientnet")  # how the cases begin whose originals are of torch

Arrays = dict[str, np.ndarray]
Checkpoint = tuple[str, Path, Arrays]  # the case, the file and what it holds


def deviation(path: Path, name: str) -> float:
    case, given = read_case(name)
    with torch.inference_mode():
        logits = vitral.load(path, architecture=routing(case))(torch.from_numpy(images(case))).numpy()
    return float(np.abs(logits - given["logits"]).max() / given["logits"].std())


def routing(case: dict[str, Any]) -> dict[str, Any]:
    """Return what a file of experts cannot say, from a case's description."""
    if "num_experts" not in case:
        return {}
    tokens = 1 + (case["image_size"] // case["patch"]) ** 2
    fields = {field: case[field] for field in ("num_selected_experts", "capacity_factor", "batch_priority")}
    fields["num_selected"] = fields.pop("num_selected_experts")
    return {"experts": {**fields, "group_images": case["group_size"] // tokens}}


@pytest.fixture(scope="module")
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkpoint]:
    """A case's checkpoint, of up to 400 MB: drawn and written once for the tests of a case, and removed after them."""
    path = tmp_path_factory.mktemp("golden") / "read.npz"
    arrays = weights(request.param)
    np.savez(path, **arrays)  # type: ignore[arg-type]
    yield request.param, path, arrays
    path.unlink()


@pytest.mark.parametrize("checkpoint", CASES, indirect=True)
def test_logits_are_the_originals(checkpoint: Checkpoint) -> None:
    name, path, _ = checkpoint
    assert deviation(path, name) < tolerance(name)


def tolerance(name: str) -> float:
    """Return the deviation that a case may have."""
    return DEEP_TOLERANCE if name.startswith(("BiT", "R26", "R50", "cvt", "efficientnet")) else TOLERANCE


def test_the_documentation_has_a_row_for_every_case() -> None:
    page = (FOLDER.parents[1] / "docs" / "golden.md").read_text()
    assert re.findall(r"^\| `([^`]+)` ", page, re.MULTILINE) == CASES


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("vmoe")])
def test_the_balance_of_experts_is_the_originals(name: str, tmp_path: Path) -> None:
    path = tmp_path / "weights.npz"
    np.savez(path, **weights(name))  # type: ignore[arg-type]
    case, given = read_case(name)
    model = vitral.load(path, architecture=routing(case)).model
    with torch.inference_mode():
        importance = model.outputs(torch.from_numpy(images(case))).auxiliary["importance"]
    assert float(importance) == pytest.approx(float(given["auxiliary_loss"][0]), rel=1e-5)


FORMATS = {"bv": "big_vision"}


@pytest.mark.parametrize("checkpoint", [name for name in CASES if not name.startswith(STATE_DICTS)], indirect=True)
def test_what_we_write_is_bit_for_bit_what_we_read(checkpoint: Checkpoint, tmp_path: Path) -> None:
    name, path, arrays = checkpoint
    format_name = FORMATS.get(name[:2], "original")
    written = vitral.convert(path, tmp_path / "written.npz", format=format_name)
    with np.load(written.path) as back:
        assert set(back) == set(arrays)
        for key, array in arrays.items():
            assert back[key].dtype == array.dtype
            assert np.array_equal(back[key], array), key


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith(STATE_DICTS)])
def test_state_dicts_are_read_however_they_are_wrapped_and_written_bit_for_bit(name: str, tmp_path: Path) -> None:
    tensors = {key: torch.from_numpy(array) for key, array in weights(name).items()}
    worse = {key: tensor + 1 for key, tensor in tensors.items()}
    parallel = {f"module.{key}": tensor for key, tensor in tensors.items()}
    averaged = {"state_dict": worse, "state_dict_ema": tensors, "args": argparse.Namespace(lr=0.1)}
    wrapped: list[dict[str, Any]] = [averaged, {"state_dict": parallel}, {"model": parallel}, tensors]
    for content in wrapped:
        torch.save(content, tmp_path / "read.pth")
        assert deviation(tmp_path / "read.pth", name) < DEEP_TOLERANCE
    written = vitral.convert(tmp_path / "read.pth", tmp_path / "written.pth", format="original")
    back = torch.load(written.path, weights_only=True)
    assert all(torch.equal(back[key], tensor) for key, tensor in tensors.items())
    extra = {key for key in back if key not in tensors}
    assert all(key == "pos_embed" or key.endswith("num_batches_tracked") for key in extra)


def linen(arrays: Arrays) -> Arrays:
    for old, new in (
        ("Attention_1", "Attention_0"),
        ("LayerNorm_2", "LayerNorm_1"),
        ("MlpBlock_3", "MlpBlock_0"),
    ):
        arrays = {name.replace(old, new): array for name, array in arrays.items()}
    return arrays


def scanned(arrays: Arrays) -> Arrays:
    return {
        name.replace("encoderblock_0", "encoderblock"): array[None] if "encoderblock_0" in name else array
        for name, array in linen(arrays).items()
    }


def with_optimizer(arrays: Arrays) -> Arrays:
    state = {f"opt/state/param_states/{name}/grad_ema": array for name, array in arrays.items()}
    return {f"opt/target/{name}": array for name, array in arrays.items()} | state


def prefixed(prefix: str) -> Callable[[Arrays], Arrays]:
    return lambda arrays: {prefix + name: array for name, array in arrays.items()}


def class_row_folded(arrays: Arrays) -> Arrays:
    """Write the class token as big_vision does: its position is part of it."""
    table = arrays.pop("Transformer/posembed_input/pos_embedding")
    return linen(arrays) | {"cls": arrays["cls"] + table[:, :1], "pos_embedding": table[:, 1:]}


@pytest.mark.parametrize(
    "rewrite",
    [linen, scanned, with_optimizer, prefixed("params/"), prefixed("params/img/"), class_row_folded],
    ids=["linen", "scanned", "optimizer", "params", "image-tower", "big-vision"],
)
def test_every_spelling_gives_the_same_logits(rewrite: Callable[[Arrays], Arrays], tmp_path: Path) -> None:
    path = tmp_path / "weights.npz"
    np.savez_compressed(path, **rewrite(weights(TINY)))  # type: ignore[arg-type]
    assert deviation(path, TINY) < TOLERANCE


def test_numbered_names_of_bit_are_read(tmp_path: Path) -> None:
    name = "BiT-M-R50x1@224"
    numbered = {
        re.sub(r"(standardized_conv2d|group_norm)/", rf"\1_{index}/", key): array
        for index, (key, array) in enumerate(weights(name).items())
    }
    assert "resnet/root_block/standardized_conv2d_0/kernel" in numbered
    np.savez(tmp_path / "BiT-M-R50x1.npz", **numbered)  # type: ignore[arg-type]
    assert deviation(tmp_path / "BiT-M-R50x1.npz", name) < DEEP_TOLERANCE


def test_sinusoids_that_a_file_leaves_out_are_computed_at_the_size_that_is_asked_for(tmp_path: Path) -> None:
    np.savez(tmp_path / "t2t.npz", **weights("t2t_vit_t_14@224"))  # type: ignore[arg-type]
    model = vitral.load(tmp_path / "t2t.npz", image_size=384).model
    assert isinstance(model, T2TViT)
    assert torch.equal(model.position, sinusoid_table(577, 384))
    grown = vitral.load(tmp_path / "t2t.npz").model
    grown.resize(384)
    assert isinstance(grown, T2TViT)
    assert not torch.equal(grown.position, model.position)


def test_bfloat16_is_read_from_raw_bytes(tmp_path: Path) -> None:
    arrays = weights(TINY)
    raw = {name: (array.view(np.uint32) >> 16).astype(np.uint16).view("V2") for name, array in arrays.items()}
    np.savez(tmp_path / "weights.npz", **raw)  # type: ignore[arg-type]
    assert deviation(tmp_path / "weights.npz", TINY) < 0.05


def test_position_embeddings_are_resized_as_the_original_does() -> None:
    with np.load(FOLDER / "posemb_resize.npz") as cases:
        for key, expected in cases.items():
            old, new, seed = map(int, re.findall(r"\d+", key))
            grid = np.random.default_rng(seed).standard_normal((old, old, 8)).astype(np.float32)
            resized = resize_position_embedding(torch.from_numpy(grid).reshape(1, old * old, 8), (old, old), (new, new))
            np.testing.assert_allclose(resized.numpy().reshape(new, new, 8), expected, atol=2e-7)
