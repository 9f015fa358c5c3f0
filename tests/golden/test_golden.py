"""Our networks against logits that the original JAX code computed."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import vitral
from tests.golden.reference import CASES, FOLDER, pictures, read_case, weights
from vitral.models.position import resize_position_embedding

TOLERANCE = 1e-5  # of the logits' standard deviation, float32
DEEP_TOLERANCE = 1e-4  # the same, of deep convolutional networks
TINY = "testing@32"

Arrays = dict[str, np.ndarray]


def deviation(path: Path, name: str) -> float:
    case, given = read_case(name)
    with torch.inference_mode():
        logits = vitral.load(path, architecture=routing(case))(torch.from_numpy(pictures(case))).numpy()
    return float(np.abs(logits - given["logits"]).max() / given["logits"].std())


def routing(case: dict[str, Any]) -> dict[str, Any]:
    """Return what a file of experts cannot say, from a case's description."""
    if "num_experts" not in case:
        return {}
    tokens = 1 + (case["image_size"] // case["patch"]) ** 2
    fields = {field: case[field] for field in ("num_selected_experts", "capacity_factor", "batch_priority")}
    fields["num_selected"] = fields.pop("num_selected_experts")
    return {"experts": {**fields, "group_images": case["group_size"] // tokens}}


@pytest.mark.parametrize("name", CASES)
def test_logits_are_the_originals(name: str, tmp_path: Path) -> None:
    path = tmp_path / "weights.npz"
    np.savez(path, **weights(name))  # type: ignore[arg-type]
    deep = name.startswith(("BiT", "R26", "R50", "cvt"))
    assert deviation(path, name) < (DEEP_TOLERANCE if deep else TOLERANCE)


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
