"""Checkpoints of V-MoE's library.

Those in vmoe/ were written by its own code (google-research/vmoe at 942a78b; four devices, three
shards, pieces of at most 200 bytes); small.npz holds the same arrays.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
import torch

import vitral
from tests.cases import every_case
from tests.golden.reference import images, read_case, weights
from vitral.errors import WeightsError
from vitral.weights.recognize import open_weights
from vitral.weights.vmoe_shards import CHUNKS

ORIGINALS = Path(__file__).parent / "vmoe"
TINY = "vmoe-tiny-cf4@32"


def packed_slices(*ends: tuple[int, int]) -> bytes:
    return msgpack.packb([msgpack.packb((start, stop, None)) for start, stop in ends])


def packed_info(shape: tuple[int, ...], parts: Mapping[tuple[tuple[int, int], ...], int]) -> msgpack.ExtType:
    whole = msgpack.packb((shape, "float32", False, {}))
    said = (whole, [packed_slices(*ends) for ends in parts], list(parts.values()))
    return msgpack.ExtType(8, msgpack.packb(said))


def packed_array(values: np.ndarray) -> msgpack.ExtType:
    return msgpack.ExtType(1, msgpack.packb((values.shape, values.dtype.name, values.tobytes())))


def write_checkpoint(arrays: Mapping[str, np.ndarray], prefix: Path, shards: int = 2) -> Path:
    """Write arrays as the library does, each cut in two along its first axis where it has one; return the index."""
    tree: dict[str, Any] = {}
    held: list[dict[str, Any]] = [{CHUNKS: True} for _ in range(shards)]
    # The library counts through the tree, whose names are in order at each level.
    for number, name in enumerate(sorted(arrays, key=lambda name: name.split("/"))):
        values, parts = arrays[name], {}
        middle = len(values) // 2
        for start, stop in ((0, middle), (middle, len(values))):
            if stop == start:
                continue
            ends = ((start, stop), *((0, side) for side in values.shape[1:]))
            shard = parts[ends] = (number + start) % shards
            flat = values[start:stop].flatten()
            pieces = [packed_array(flat[: len(flat) // 2]), packed_array(flat[len(flat) // 2 :])]
            piece = [pieces, msgpack.ExtType(6, packed_slices(*ends))]
            held[shard].setdefault(str(number), []).append(piece)
        *folders, last = name.split("/")
        branch = tree
        for folder in folders:
            branch = branch.setdefault(folder, {})
        branch[last] = packed_info(values.shape, parts)
    for number, content in enumerate(held):
        prefix.with_name(f"{prefix.name}.data-{number:05d}-of-{shards:05d}").write_bytes(msgpack.packb(content))
    index = prefix.with_name(f"{prefix.name}.index")
    index.write_bytes(msgpack.packb({"shard_count": shards, "index": tree, "version": "20220622"}))
    return index


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The index of a copy of the library's own files."""
    shutil.copytree(ORIGINALS, tmp_path / "vmoe")
    return tmp_path / "vmoe" / "small.index"


def test_what_the_library_wrote_is_read_to_the_bit() -> None:
    with open_weights(ORIGINALS / "small.index") as container, np.load(ORIGINALS / "small.npz") as expected:
        assert container.shapes == {name: expected[name].shape for name in expected.files}
        for name in expected.files:
            tensor = container.read(name)
            assert tensor.dtype == torch.float32
            assert np.array_equal(tensor.numpy(), expected[name]), name


def test_a_network_of_shards_gives_the_originals_logits(tmp_path: Path) -> None:
    case, given = read_case(TINY)
    index = write_checkpoint(weights(TINY), tmp_path / "tiny")
    tokens = 1 + (case["image_size"] // case["patch"]) ** 2
    routing = {"capacity_factor": 4.0, "group_images": case["group_size"] // tokens}
    for source in (index, tmp_path):
        classifier = vitral.load(source, architecture={"experts": routing})
        with torch.inference_mode():
            logits = classifier(torch.from_numpy(images(case))).numpy()
        assert np.abs(logits - given["logits"]).max() < 1e-5 * given["logits"].std()


def test_a_missing_shard_is_named(copied: Path) -> None:
    copied.with_name("small.data-00001-of-00003").unlink()
    with pytest.raises(WeightsError, match=r"lacks small.data-00001-of-00003 beside it, of 3 shards"):
        vitral.load(copied)


def test_a_shard_is_not_an_index(copied: Path) -> None:
    with pytest.raises(WeightsError, match="is a shard of a checkpoint; name its index"):
        vitral.load(copied.with_name("small.data-00001-of-00003"))


def test_shards_of_another_checkpoint_are_refused(copied: Path) -> None:
    shard = copied.with_name("small.data-00001-of-00003")
    shutil.copy(copied.with_name("small.data-00000-of-00003"), shard)
    with open_weights(copied) as container, pytest.raises(WeightsError, match="what its index does not name"):
        container.read("cls")


def test_a_shard_without_one_of_its_pieces_is_refused(copied: Path) -> None:
    shard = copied.with_name("small.data-00000-of-00003")
    content = msgpack.unpackb(shard.read_bytes())
    content.pop(next(name for name in content if name != CHUNKS))
    shard.write_bytes(msgpack.packb(content))
    with open_weights(copied) as container, pytest.raises(WeightsError, match="its shards lack a part of"):
        container.read("cls")


@pytest.mark.parametrize("name", ["small.index", "small.data-00002-of-00003"])
def test_files_that_are_cut_short_are_damaged(copied: Path, name: str) -> None:
    path = copied.with_name(name)
    whole = path.read_bytes()
    for length in (1, 20, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(WeightsError) as refused, open_weights(copied) as container:
            container.read("cls")
        assert "\n" not in str(refused.value)
        assert name in str(refused.value)


@every_case(
    ("parts", "message"),
    [
        ({((0, 2),): 0}, "not a whole array"),
        ({((0, 9),): 0}, "not a whole array"),
        ({((-1, 3),): 0}, "not a whole array"),
        ({((0, 4), (0, 1)): 0}, "not a whole array"),
        ({(("0", "4"),): 0}, "damaged or not a weights file"),
    ],
)
def test_impossible_slices_are_refused(tmp_path: Path, parts: Any, message: str) -> None:  # noqa: ANN401
    index = tmp_path / "bad.index"
    index.write_bytes(msgpack.packb({"shard_count": 1, "index": {"head": packed_info((4,), parts)}}))
    with pytest.raises(WeightsError, match=message):
        vitral.load(index)


def test_an_index_that_claims_terabytes_is_refused(tmp_path: Path) -> None:
    index, side = tmp_path / "large.index", 10**12
    index.write_bytes(msgpack.packb({"shard_count": 1, "index": {"head": packed_info((side,), {((0, side),): 0})}}))
    (tmp_path / "large.data-00000-of-00001").write_bytes(msgpack.packb({CHUNKS: True}))
    with pytest.raises(WeightsError, match="far more than weights do"):
        vitral.load(index)


def test_other_msgpack_is_no_index(tmp_path: Path) -> None:
    path = tmp_path / "weights.index"
    path.write_bytes(msgpack.packb({"params": {}, "step": 3}))
    with pytest.raises(WeightsError, match="is not an index of V-MoE's shards"):
        vitral.load(path)
