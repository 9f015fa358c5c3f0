"""What a network answers to a view comes back to the photo as EoMT's inference brings it, and only where the view shows it."""

from typing import Any

import numpy as np
import torch
from torch.nn import functional

from tests.cases import every_case
from vitral.images.geometry import Crop, Geometry, Resize
from vitral.images.preprocessing import Preprocessing
from vitral.images.run_lengths import decode_mask, encode_mask, encode_part
from vitral.images.to_photo import at_size, bands_in_photo, parts_in_photo

SIZE = (64, 64)
SHAPES = ((90, 130), (200, 61), (64, 64), (7, 9))
KINDS = [(resize, resampler) for resize in ("squash", "crop", "pad") for resampler in ("float32", "pillow", "torch")]


def preparation(resize: Any, resampler: Any) -> Preprocessing:  # noqa: ANN401  # of fixed words
    return Preprocessing(
        image_size=SIZE, resize=resize, resampler=resampler, antialias=True, mean=(0.2, 0.3, 0.4), crop_fraction=0.9
    )


def published(maps: torch.Tensor, size: tuple[int, int], padded: bool) -> torch.Tensor:
    """EoMT's way back: training/lightning_module.py, eval_step and revert_resize_and_pad_logits_instance_panoptic."""
    maps = functional.interpolate(maps[None], SIZE, mode="bilinear")
    if padded:
        factor = min(SIZE[0] / size[0], SIZE[1] / size[1])
        scaled = [round(side * factor) for side in size]
        maps = maps[:, :, : scaled[0], : scaled[1]]
    return functional.interpolate(maps, size, mode="bilinear")[0]


@every_case(("resize", "resampler"), KINDS)
@every_case("shape", SHAPES)
def test_the_geometry_says_what_the_preprocessing_does(resize: str, resampler: str, shape: tuple[int, int]) -> None:
    image = np.zeros((*shape, 3), dtype=np.uint8)
    image[shape[0] // 4 : shape[0] * 3 // 4, shape[1] // 4 : shape[1] // 2] = 255
    prepared = preparation(resize, resampler)
    geometry = prepared.geometry(*shape)
    assert geometry.size == SIZE
    pixels = prepared.fit(image).permute(1, 2, 0).numpy()
    shown = geometry.mask(image[..., 0], fill=7)
    assert (abs(pixels[..., 0] - shown) < 128)[shown != 7].mean() > 0.97
    assert (resize == "pad" and shape[0] != shape[1]) == (shown == 7).any()
    assert (pixels[shown == 7] == prepared.mean_colour).all()


def test_maps_of_the_size_are_not_copied() -> None:
    maps = torch.randn(3, *SIZE, generator=torch.Generator().manual_seed(2))
    assert torch.equal(functional.interpolate(maps[None], SIZE, mode="bilinear")[0], maps)
    assert at_size(maps, SIZE).data_ptr() == maps.data_ptr()
    (band,) = bands_in_photo(maps, Geometry(SIZE))
    assert band.data_ptr() == maps.data_ptr()


@every_case("resize", ["squash", "pad"])
@every_case("shape", SHAPES)
def test_maps_come_back_as_published(resize: str, shape: tuple[int, int]) -> None:
    maps = torch.randn(3, 16, 16, generator=torch.Generator().manual_seed(1))
    view = preparation(resize, "torch").geometry(*shape) if resize == "pad" else Geometry(shape, (Resize(*SIZE),))
    expected = published(maps, shape, resize == "pad")
    assert torch.equal(torch.cat([*bands_in_photo(maps, view)], dim=1), expected)
    bands = list(bands_in_photo(maps, view, most_values=3 * shape[1] * 2))
    assert len(bands) == -(-shape[0] // 2)
    torch.testing.assert_close(torch.cat(bands, dim=1), expected, atol=1e-5, rtol=0)
    masks = [decode_mask(runs, shape) for _, runs in parts_in_photo(maps, view)]
    assert (np.stack(masks) == (expected > 0).numpy()).mean() > 0.9999


def test_a_window_comes_back_to_its_place() -> None:
    view = Geometry((40, 60), (Resize(80, 120), Crop(10, 30, 64, 64)))
    rows, columns = torch.meshgrid(torch.arange(64.0), torch.arange(64.0), indexing="ij")
    (back,) = bands_in_photo(torch.stack([rows, columns]), view, fill=-5.0)
    assert back.shape == (2, 40, 60)
    assert (back[:, :5] == -5).all()
    assert (back[:, :, :15] == -5).all()
    assert (back[:, :, 47:] == -5).all()
    assert (back[:, 37:] == -5).all()
    torch.testing.assert_close(back[0, 5:37, 20], 2 * torch.arange(32.0) + 0.5)
    torch.testing.assert_close(back[1, 20, 15:47], 2 * torch.arange(32.0) + 0.5)
    blobs = torch.stack([9.0 - abs(rows - 30) - abs(columns - 9), torch.full((64, 64), -1.0)])
    masks = [decode_mask(runs, (40, 60)) for _, runs in parts_in_photo(blobs, view)]
    assert (masks[0] == (next(bands_in_photo(blobs, view))[0] > 0).numpy()).all()
    assert [mask.sum() > 0 for mask in masks] == [True, False]


def test_a_part_of_a_mask_is_written_as_the_whole() -> None:
    rng = np.random.default_rng(0)
    for share in (0.0, 0.3, 0.9, 1.0):
        for corner, size in (((0, 0), (5, 4)), ((2, 1), (9, 7)), ((0, 3), (5, 7))):
            part, whole = rng.random((5, 4)) < share, np.zeros(size, dtype=bool)
            whole[corner[0] : corner[0] + 5, corner[1] : corner[1] + 4] = part
            runs = encode_part(part, corner, size)
            assert runs.tolist() == encode_mask(whole).tolist()
            assert (decode_mask(runs, size) == whole).all()
            assert (runs[1:] > 0).all()
