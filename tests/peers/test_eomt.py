"""Our EoMT against transformers': both backbones, masked and plain, file in and file out, and all that follows the logits."""

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import vitral
from tests.cases import every_case
from tests.peers.compare import gap, pixels, scramble
from vitral.errors import WeightsError
from vitral.images.geometry import Crop, Geometry, Resize
from vitral.models.dense.answers import QueryAnswers
from vitral.objectives.masks import MaskLoss
from vitral.tasks.query_answers import (
    SURE,
    find_classes_of_queries,
    find_objects_of_queries,
    segments_by_sureness,
)
from vitral.weights.load import read_weights
from vitral.weights.save import write_weights

transformers = pytest.importorskip("transformers")
pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore")]

TOLERANCE = 1e-5  # of the standard deviation
SIDE = 96
NAMES = tuple("abcde")


def settings(**more: Any) -> dict[str, Any]:
    sizes = {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 2, "image_size": SIDE}
    return {**sizes, "num_blocks": 3, "num_queries": 12, "num_labels": len(NAMES), **more}


def dinov2(**more: Any) -> Any:
    return transformers.EomtForUniversalSegmentation(transformers.EomtConfig(**settings(**more)))


def dinov3(**more: Any) -> Any:
    config = transformers.EomtDinov3Config(**settings(intermediate_size=128, **more))
    return transformers.EomtDinov3ForUniversalSegmentation(config)


NETWORKS: dict[str, Callable[[], Any]] = {
    "dinov2": dinov2,
    "no-registers": lambda: dinov2(num_register_tokens=0),
    "patch-8": lambda: dinov2(patch_size=8, num_upscale_blocks=1, image_size=32),
    "swiglu": lambda: dinov2(use_swiglu_ffn=True),
    "dinov3": dinov3,
    "dinov3-no-biases": lambda: dinov3(query_bias=False, value_bias=False),
    "dinov3-moved": lambda: dinov3(pos_embed_shift=0.2, pos_embed_jitter=1.5, pos_embed_rescale=3.0),
}


def saved(make: Callable[[], Any], folder: Path, masking: float = 0.0) -> Any:
    model = make().eval()
    scramble(model)
    model.attn_mask_probs.fill_(masking)
    model.criterion.empty_weight.fill_(1.0)
    model.criterion.empty_weight[-1] = 0.1
    model.save_pretrained(folder)
    return model


@every_case("masking", (0.0, 1.0))
@every_case("kind", NETWORKS)
def test_the_same_logits_masked_and_plain(kind: str, masking: float, tmp_path: Path) -> None:
    theirs = saved(NETWORKS[kind], tmp_path, masking)
    ours = read_weights(tmp_path / "model.safetensors").model
    images = pixels(ours.image_size)
    with torch.inference_mode():
        answer, expected = ours(images), theirs(images)
    assert gap(answer.masks, expected.masks_queries_logits) < TOLERANCE
    assert gap(answer.classes, expected.class_queries_logits) < TOLERANCE


@every_case("kind", NETWORKS)
def test_written_back_bit_for_bit_and_opened_there(kind: str, tmp_path: Path) -> None:
    theirs = saved(NETWORKS[kind], tmp_path / "theirs")
    loaded = read_weights(tmp_path / "theirs" / "model.safetensors")
    folder = tmp_path / "ours"
    write_weights(loaded.model, loaded.preprocessing, NAMES, folder, "transformers", overwrite=True)
    before, after = (load_file(place / "model.safetensors") for place in (tmp_path / "theirs", folder))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    again = type(theirs).from_pretrained(folder).eval()
    images = pixels(loaded.model.image_size)
    with torch.inference_mode():
        assert torch.equal(again(images).masks_queries_logits, theirs(images).masks_queries_logits)
    assert again.config.id2label == dict(enumerate(NAMES))
    assert transformers.AutoImageProcessor.from_pretrained(folder).size["shortest_edge"] == again.config.image_size


# How EoMT's own code, which wraps transformers' DINOv3, names what transformers' EoMT has (models/vit.py, models/eomt.py).
OWN_NAMES = {
    "embeddings.": "network.encoder.backbone.patch_embed.",
    "layers.": "network.encoder.backbone.blocks.",
    "layernorm.": "network.encoder.backbone.norm.",
    "query.": "network.q.",
    "class_predictor.": "network.class_head.",
    **{f"mask_head.fc{number}.": f"network.mask_head.{2 * number - 2}." for number in (1, 2, 3)},
    "upscale_block.block.": "network.upscale.",
    "attn_mask_probs": "network.attn_mask_probs",
    "criterion.": "criterion.",
}


def own_name(name: str) -> str:
    start = next(start for start in OWN_NAMES if name.startswith(start))
    return OWN_NAMES[start] + name.removeprefix(start).replace("layernorm2d", "norm")


def test_differences_are_added_to_dinov3_as_its_authors_code_does(tmp_path: Path) -> None:
    theirs = saved(lambda: dinov3(layer_norm_eps=1e-5), tmp_path / "theirs")  # DINOv3's own, not EoMT's on DINOv2
    shape = {**settings(), "intermediate_size": 128, "num_register_tokens": theirs.config.num_register_tokens}
    sizes = {name: value for name, value in shape.items() if name not in ("num_blocks", "num_queries", "num_labels")}
    base = transformers.DINOv3ViTModel(transformers.DINOv3ViTConfig(**sizes)).eval()
    scramble(base)
    base.save_pretrained(tmp_path / "base")
    below = {
        re.sub(r"^(model\.)?norm\.", "layernorm.", re.sub(r"^(model\.)?layer\.", "layers.", name)): value
        for name, value in base.state_dict().items()
    }
    state, file = theirs.state_dict(), tmp_path / "pytorch_model.bin"
    start = {**below, "attn_mask_probs": torch.ones(3)}  # of a new network there, whose other weights are zeros
    own = {own_name(name): value - start.get(name, torch.zeros(())) for name, value in state.items()}
    means = {f"network.encoder.pixel_{name}": torch.zeros(1, 3, 1, 1) for name in ("mean", "std")}
    torch.save({"state_dict": own | means}, file)
    theirs.load_state_dict(
        {name: value + own[own_name(name)] for name, value in start.items() if name in state}, strict=False
    )
    ours = vitral.load(file, backbone=tmp_path / "base", image_size=SIDE)
    assert ours.preprocessing.image_size == (SIDE, SIDE)
    images = pixels((SIDE, SIDE))
    with torch.inference_mode():
        answer, expected = ours.model(images), theirs(images)
    assert gap(answer.masks, expected.masks_queries_logits) < TOLERANCE
    assert gap(answer.classes, expected.class_queries_logits) < TOLERANCE
    assert torch.equal(ours.model.get_parameter("backbone.norm.weight"), theirs.layernorm.weight)
    torch.save(own | {name: value + 0.485 for name, value in means.items()}, file)
    with pytest.raises(WeightsError, match="whole weights"):
        vitral.load(file, backbone=tmp_path / "base")
    with pytest.raises(WeightsError, match="a DINOv3 of 4 blocks of 64 channels"):
        vitral.load(file, backbone="vit-mu16")


def batch(regions: tuple[int, ...] = (3, 0, 20)) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return classes and masks of images; one has none, one more than there are queries."""
    drawn = torch.Generator().manual_seed(1)
    classes = [torch.randint(len(NAMES), (count,), generator=drawn) for count in regions]
    masks = [torch.rand(count, SIDE, SIDE, generator=drawn) > 0.7 for count in regions]
    return classes, masks


# How many numbers DINOv3's positions take in training: one to rescale, two each to shift and to jitter.
MOVES = {"dinov2": 0, "dinov3": 1, "dinov3-moved": 5}


@every_case("kind", MOVES)
def test_the_same_loss_and_gradients_as_in_training_there(kind: str, tmp_path: Path) -> None:
    theirs = saved(NETWORKS[kind], tmp_path, masking=1.0).train()
    theirs.criterion.num_points = theirs.criterion.matcher.num_points = 300
    ours = read_weights(tmp_path / "model.safetensors").model.train()
    classes, masks = batch()
    images = pixels(ours.image_size, batch=3)
    torch.manual_seed(5)
    # Every mask is in use, for which there nothing is drawn; ours draws, and is taken back.
    expected = theirs(images, mask_labels=[mask.float() for mask in masks], class_labels=classes)
    torch.manual_seed(5)
    answers = ours.outputs(images).logits
    torch.manual_seed(5)
    torch.empty(MOVES[kind]).uniform_()
    loss, _ = MaskLoss(points=300)(answers, classes, masks, num_masks=torch.tensor(23.0))  # type: ignore[arg-type]
    assert float((loss - expected.loss).abs() / expected.loss) < 1e-5
    loss.backward()  # type: ignore[no-untyped-call]
    expected.loss.backward()
    assert gap(ours.head.queries.grad, theirs.query.weight.grad) < 1e-3  # type: ignore[arg-type]
    assert gap(ours.backbone.patch_embedding.weight.grad, first_layer(theirs).weight.grad) < 1e-3  # type: ignore[arg-type, union-attr]


def first_layer(theirs: Any) -> torch.nn.Conv2d:
    patches = theirs.embeddings.patch_embeddings
    layer: torch.nn.Conv2d = getattr(patches, "projection", patches)
    return layer


VIEW = (64, 64)
PHOTOS = ((64, 64), (97, 97), (80, 120), (130, 55))


def views(*, padded: bool) -> list[Geometry]:
    """Return how photos were brought to views: padded at the right and below, or squashed."""
    from transformers.image_transforms import get_size_with_aspect_ratio

    if not padded:
        return [Geometry(size, (Resize(*VIEW),)) for size in PHOTOS]
    sizes = [get_size_with_aspect_ratio(size, *VIEW) for size in PHOTOS]
    return [Geometry(size, (Resize(*seen), Crop(0, 0, *VIEW))) for size, seen in zip(PHOTOS, sizes, strict=True)]


def answered() -> tuple[QueryAnswers, Any, Any]:
    """Return answers of queries whose masks are blobs that overlap, some of them sure; the same for transformers."""
    drawn = torch.Generator().manual_seed(3)
    classes = 6 * torch.randn(len(PHOTOS), 40, len(NAMES) + 1, generator=drawn)
    middles, radii = 16 * torch.rand(len(PHOTOS), 40, 2, generator=drawn), torch.rand(len(PHOTOS), 40, generator=drawn)
    places = torch.cartesian_prod(torch.arange(16.0), torch.arange(16.0))
    masks = (2.5 * radii[:, :, None] - torch.cdist(middles, places.expand(len(PHOTOS), -1, -1))).unflatten(2, (16, 16))  # type: ignore[no-untyped-call]
    outputs = SimpleNamespace(masks_queries_logits=masks, class_queries_logits=classes, patch_offsets=None)
    processor = transformers.EomtImageProcessor(size={"shortest_edge": VIEW[0], "longest_edge": VIEW[1]})
    return QueryAnswers(classes, masks), outputs, processor


def test_the_same_panoptic_map() -> None:
    answers, outputs, processor = answered()
    expected = processor.post_process_panoptic_segmentation(outputs, list(PHOTOS), stuff_classes=[1, 3])
    maps = segments_by_sureness(answers, views(padded=True), stuff=(1, 3), sures=(SURE,))
    found = [image for (image,) in maps]
    assert max(len(image.regions) for image in found) > 2 * len(NAMES)
    for ours, theirs in zip(found, expected, strict=True):
        segments = np.full(ours.regions.size, -1)
        for number, mask in enumerate(ours.regions.bitmaps()):
            segments[mask] = number
        np.testing.assert_array_equal(segments, theirs["segmentation"].numpy())
        assert ours.regions.classes.tolist() == [segment["label_id"] for segment in theirs["segments_info"]]
        assert ours.scores == pytest.approx([segment["score"] for segment in theirs["segments_info"]], abs=1e-6)


def test_the_same_classes_of_pixels() -> None:
    answers, outputs, processor = answered()
    expected = processor.post_process_semantic_segmentation(outputs, list(PHOTOS))
    for ours, theirs in zip(find_classes_of_queries(answers, views(padded=False)), expected, strict=True):
        np.testing.assert_array_equal(ours.class_map, theirs.numpy())


def test_the_same_objects_as_its_authors_code_finds() -> None:
    answers, outputs, processor = answered()
    enlarged = torch.nn.functional.interpolate(outputs.masks_queries_logits, VIEW, mode="bilinear")
    expected = processor.unpad_image(enlarged, PHOTOS, processor.size)
    found = find_objects_of_queries(answers, views(padded=True), most=60)
    for ours, logits, classes in zip(found, expected, answers.classes, strict=True):
        shares = classes.softmax(dim=-1)[:, :-1]
        top, places = shares.flatten().topk(60)
        masks = (logits > 0)[places // len(NAMES)]
        inside = (logits.sigmoid()[places // len(NAMES)] * masks).flatten(1).sum(1) / (masks.flatten(1).sum(1) + 1e-6)
        scores, order = (top * inside).sort(descending=True, stable=True)
        order = order[masks[order].flatten(1).any(dim=1)]
        assert ours.scores == pytest.approx(scores[: len(order)].numpy(), abs=2e-4)
        assert ours.regions.classes.tolist() == (places % len(NAMES))[order].tolist()
        differing = ours.regions.bitmaps() != masks[order].numpy()
        assert differing.mean() < 1e-4  # on the border, where a logit is 0 to the last digits


def test_its_processors_settings_are_read_and_ours_come_back(tmp_path: Path) -> None:
    saved(NETWORKS["dinov2"], tmp_path)
    for split, resize in ((False, "pad"), (True, "squash")):
        processor = transformers.EomtImageProcessor(do_pad=not split, do_split_image=split, image_mean=[0.4, 0.5, 0.6])
        processor.save_pretrained(tmp_path)
        loaded = read_weights(tmp_path / "model.safetensors")
        assert (loaded.preprocessing.resize, loaded.preprocessing.mean) == (resize, (0.4, 0.5, 0.6))
        assert loaded.preprocessing.image_size == (SIDE, SIDE)
        assert sum("Its source" in note for note in loaded.notes) == 1
        write_weights(loaded.model, loaded.preprocessing, NAMES, tmp_path / resize, "transformers")
        again = read_weights(tmp_path / resize / "model.safetensors")
        assert (again.preprocessing, again.class_names) == (loaded.preprocessing, NAMES)
