"""What `regions.py` sets beside Vitral: a small U-Net, transformers' trainer, Ultralytics, as their documentation uses them.

Each learns from the photos of Vitral's training split until its time is over, and gives what finds the regions of one photo.
"""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor, nn
from torch.nn import functional

from vitral.data.source import DataSet, Source
from vitral.images.decode import Pixels
from vitral.tasks.regions import VOID, FoundRegions, Regions

CROP, CROPS = 256, 8  # pixels of a side, and crops of a step
RATE = 1e-3
IGNORED = 255
WARM_STEPS = 3  # before the pace of a trainer is measured over
PACE_STEPS = 5
SIDE = 252  # pixels of the photos of EoMT: 18 patches of 14
DETECTOR_SIDE = 392  # and of RF-DETR: two windows of 14 patches
MOST_QUERIES = 100
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

Finder = Callable[[Pixels], FoundRegions]
Made = tuple[Finder, str]


@dataclass(frozen=True)
class Work:
    """What a peer has to do.

    Attributes:
        data: The photos with their splits and classes.
        task: "semantic", "instances" or "boxes".
        until: When it must have learned, in seconds of the monotonic clock.
        seed: What decides chance.
        start: A folder of a ViT-S/14 in DINOv2's form, as transformers reads it; None for random weights.
    """

    data: DataSet
    task: str
    until: float
    seed: int
    start: Path | None

    @property
    def classes(self) -> int:
        """How many classes there are."""
        return len(self.data.class_names)

    @property
    def photos(self) -> Source:
        """The training photos."""
        return self.data.splits["train"]

    @property
    def left(self) -> float:
        """The seconds that are left."""
        return self.until - time.monotonic()


class UNet(nn.Module):
    """A U-Net of four levels (arXiv 1505.04597) with batch norm and 16 to 128 channels."""

    def __init__(self, outputs: int, widths: tuple[int, ...] = (16, 32, 64, 128)) -> None:
        super().__init__()
        ins = (3, *widths[:-1])
        self.down = nn.ModuleList([self.convolutions(*pair) for pair in zip(ins, widths, strict=True)])
        pairs = list(zip(widths[:-1], widths[1:], strict=True))
        self.up = nn.ModuleList([self.convolutions(low + high, low) for low, high in reversed(pairs)])
        self.out = nn.Conv2d(widths[0], outputs, 1)

    @staticmethod
    def convolutions(before: int, after: int) -> nn.Sequential:
        """Return two convolutions with batch norm."""

        def layers(channels: int) -> list[nn.Module]:
            return [nn.Conv2d(channels, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]

        return nn.Sequential(*layers(before), *layers(after))

    def forward(self, images: Tensor) -> Tensor:
        """Return logits of every pixel."""
        levels = []
        for number, layers in enumerate(self.down):
            images = layers(images if number == 0 else functional.max_pool2d(images, 2))
            levels.append(images)
        images = levels.pop()
        for layers in self.up:
            images = layers(torch.cat([functional.interpolate(images, scale_factor=2), levels.pop()], dim=1))
        return self.out(images)


def numbered(regions: Regions, classes: int) -> np.ndarray:
    """Return the class of each pixel; of objects the inside has the class, the rim the next number, nothing the one after."""
    rim, nothing = classes, classes + 1
    labels = np.full(regions.size, nothing, dtype=np.uint8)
    for number, mask in zip(regions.classes.tolist(), regions.bitmaps(), strict=True):
        inside = ndimage.binary_erosion(mask, np.ones((3, 3)))
        labels[mask] = rim
        labels[inside] = number
    labels[regions.ignored_bitmap()] = IGNORED
    return labels


def tensor(photo: Pixels) -> Tensor:
    return (torch.from_numpy(photo.copy()).permute(2, 0, 1).float() / 255 - torch.tensor(MEAN)[:, None, None]) / (
        torch.tensor(DEVIATION)[:, None, None]
    )


def crops(photos: list[tuple[Pixels, np.ndarray]], chance: np.random.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches of crops, turned and mirrored."""
    while True:
        images, labels = [], []
        for index in chance.integers(len(photos), size=CROPS):
            photo, numbers = photos[index]
            below, right = (max(0, CROP - side) for side in numbers.shape)
            photo = np.pad(photo, ((0, below), (0, right), (0, 0)), mode="reflect" if below + right else "edge")
            numbers = np.pad(numbers, ((0, below), (0, right)), constant_values=IGNORED)
            top, left = (int(chance.integers(side - CROP + 1)) for side in numbers.shape)
            turns, mirrored = int(chance.integers(4)), int(chance.integers(2)) * 2 - 1
            part = slice(top, top + CROP), slice(left, left + CROP)
            images.append(tensor(np.rot90(photo[part], turns)[:, ::mirrored]))
            labels.append(torch.from_numpy(np.rot90(numbers[part], turns)[:, ::mirrored].copy()).long())
        yield torch.stack(images), torch.stack(labels)


def unet(work: Work) -> Made:
    """A U-Net on crops: of classes, or of insides and rims, whose connected parts are the objects."""
    torch.manual_seed(work.seed)
    semantic = work.task == "semantic"
    network = UNet(work.classes + (0 if semantic else 2))
    photos = [
        (
            work.photos.image(index),
            label.class_map().astype(np.uint8) if semantic else numbered(label, work.classes),
        )
        for index in range(len(work.photos))
        if isinstance(label := work.photos.label(index), Regions)
    ]
    optimizer = torch.optim.AdamW(network.parameters(), RATE)
    began, steps = time.monotonic(), 0
    for images, labels in crops(photos, np.random.default_rng(work.seed)):
        done = (time.monotonic() - began) / max(work.until - began, 1e-9)
        if done >= 1:
            break
        optimizer.param_groups[0]["lr"] = RATE * min(1.0, 10 * done + 0.01) * (1 + np.cos(np.pi * done)) / 2
        functional.cross_entropy(network(images), labels, ignore_index=IGNORED).backward()
        optimizer.step()
        optimizer.zero_grad()
        steps += 1
    network.eval()

    def find(photo: Pixels) -> FoundRegions:
        height, width = photo.shape[:2]
        padded = functional.pad(tensor(photo)[None], (0, -width % 16, 0, -height % 16), mode="replicate")
        with torch.inference_mode():
            shares = network(padded)[0, :, :height, :width].softmax(0).numpy()
        return found_map(shares.argmax(0)) if semantic else found_parts(shares, work.classes)

    return find, f"U-Net, {steps:,} steps"


def found_map(labels: np.ndarray) -> FoundRegions:
    regions = Regions.of_map(labels.astype(np.int64))
    return FoundRegions(regions, np.ones(len(regions)), labels.astype(np.int64))


def found_parts(shares: np.ndarray, classes: int) -> FoundRegions:
    """Return the connected insides, each grown by the rim that was taken from it."""
    labels, masks, numbers, scores = shares.argmax(0), [], [], []
    for number in range(classes):
        parts, count = ndimage.label(labels == number)
        grown = ndimage.grey_dilation(parts, size=(3, 3))
        for part in range(1, count + 1):
            masks.append((parts == part) | ((grown == part) & (parts == 0)))
            scores.append(float(shares[number][parts == part].mean()))
            numbers.append(number)
    return ordered(shares.shape[1:], numbers, scores, masks=masks)


def ordered(
    size: tuple[int, ...],
    numbers: list[int],
    scores: list[float],
    *,
    masks: list[np.ndarray] | None = None,
    boxes: list[list[float]] | None = None,
) -> FoundRegions:
    """Return regions, the likeliest first."""
    order = np.argsort([-score for score in scores], kind="stable").tolist()
    classes, height_width = [numbers[row] for row in order], (size[0], size[1])
    if masks is not None:
        regions = Regions.of_masks(height_width, classes, [masks[row] for row in order])
    else:
        regions = Regions.of_boxes(height_width, classes, [(boxes or [])[row] for row in order])
    return FoundRegions(regions, np.array([scores[row] for row in order]))


class Photos(torch.utils.data.Dataset[dict[str, Any]]):
    """Training photos at one size, half of them mirrored, as transformers' trainer takes them."""

    def __init__(self, work: Work, side: int) -> None:
        self.work, self.side = work, side

    def __len__(self) -> int:
        return len(self.work.photos)

    def __getitem__(self, index: int) -> dict[str, Any]:
        regions = self.work.photos.label(index)
        assert isinstance(regions, Regions)
        image = squashed(self.work.photos.image(index), self.side)
        mirrored = bool(torch.rand(()) < 0.5)  # half of them
        kept = regions.chosen(~regions.crowd)
        classes = torch.from_numpy(kept.classes)
        if self.work.task == "boxes":
            height, width = kept.size
            left, top, right, bottom = torch.from_numpy(kept.boxes).float().T / torch.tensor(
                [[width], [height], [width], [height]]
            )
            middle = (left + right) / 2
            boxes = torch.stack(
                [1 - middle if mirrored else middle, (top + bottom) / 2, right - left, bottom - top], dim=1
            )
            label: dict[str, Tensor] = {"class_labels": classes, "boxes": boxes}
        else:
            masks = torch.from_numpy(kept.bitmaps())[None].float()
            masks = functional.interpolate(masks, (self.side, self.side), mode="nearest")[0]
            label = {"class_labels": classes, "mask_labels": masks.flip(-1) if mirrored else masks}
        return {"pixel_values": image.flip(-1) if mirrored else image, "labels": label}


def squashed(photo: Pixels, side: int) -> Tensor:
    sized = functional.interpolate(tensor(photo)[None], (side, side), mode="bilinear", antialias=True)
    return sized[0]


def trained(model: nn.Module, work: Work, side: int, collate: Callable[[list[Any]], dict[str, Any]], batch: int) -> int:
    """Train a model by transformers' own trainer until the time is over, and return the steps."""
    import transformers

    def train(steps: int) -> float:
        with tempfile.TemporaryDirectory() as folder:
            settings = transformers.TrainingArguments(
                folder,
                max_steps=steps,
                per_device_train_batch_size=batch,
                learning_rate=1e-4,
                weight_decay=0.05,
                warmup_steps=max(1, steps // 10),
                lr_scheduler_type="cosine",
                max_grad_norm=1.0,
                save_strategy="no",
                report_to=[],
                logging_strategy="no",
                disable_tqdm=True,
                remove_unused_columns=False,
                use_cpu=True,
                seed=work.seed,
            )
            began = time.monotonic()
            transformers.Trainer(model, settings, train_dataset=Photos(work, side), data_collator=collate).train()
            return time.monotonic() - began

    before = {name: value.clone() for name, value in model.state_dict().items()}
    train(WARM_STEPS)
    pace = train(PACE_STEPS) / PACE_STEPS
    model.load_state_dict(before)
    steps = max(1, int(0.97 * work.left / pace))
    train(steps)
    model.eval()
    return steps


def from_start(work: Work, rename: Callable[[str], str], model: nn.Module) -> None:
    """Copy a ViT's tensors that fit into a model."""
    import transformers

    if work.start is None:
        return
    own = transformers.Dinov2Model.from_pretrained(work.start).state_dict()
    wanted = model.state_dict()
    renamed = {rename(name): value for name, value in own.items()}
    fitting = {name: value for name, value in renamed.items() if name in wanted and wanted[name].shape == value.shape}
    place = "embeddings.position_embeddings.weight"  # of EoMT: without the class token's, at the model's own size
    if place in wanted:
        grid = own["embeddings.position_embeddings"][:, 1:].unflatten(1, (37, 37)).permute(0, 3, 1, 2)
        side = round(len(wanted[place]) ** 0.5)
        sized = functional.interpolate(grid, (side, side), mode="bicubic", antialias=True)
        fitting[place] = sized[0].flatten(1).T.contiguous()
    assert len(fitting) > len(own) * 3 // 4, "the start's tensors have other names"
    model.load_state_dict(fitting, strict=False)


def eomt(work: Work) -> Made:
    """EoMT on a ViT-S/14 by transformers' model, loss and trainer."""
    import transformers

    torch.manual_seed(work.seed)
    model = transformers.EomtForUniversalSegmentation(
        transformers.EomtConfig(
            hidden_size=384,
            num_hidden_layers=12,
            num_attention_heads=6,
            image_size=SIDE,
            patch_size=14,
            num_upscale_blocks=1,
            num_blocks=3,
            num_register_tokens=0,
            num_queries=MOST_QUERIES,
            num_labels=work.classes,
        )
    )
    from_start(
        work,
        lambda name: name.removeprefix("encoder.").replace("layer.", "layers.").replace("o_proj", "out_proj"),
        model,
    )
    model.attn_mask_probs.fill_(0.0)  # plain attention, as after the annealing

    def collate(rows: list[Any]) -> dict[str, Any]:
        return {
            "pixel_values": torch.stack([row["pixel_values"] for row in rows]),
            "mask_labels": [row["labels"]["mask_labels"] for row in rows],
            "class_labels": [row["labels"]["class_labels"] for row in rows],
        }

    steps = trained(model, work, SIDE, collate, 4)

    def find(photo: Pixels) -> FoundRegions:
        with torch.inference_mode():
            answer = model(squashed(photo, SIDE)[None])
            masks = functional.interpolate(answer.masks_queries_logits, photo.shape[:2], mode="bilinear")[0]
        classes = answer.class_queries_logits[0].softmax(-1)[:, :-1]
        if work.task == "semantic":
            return found_map(torch.einsum("qc,qhw->chw", classes, masks.sigmoid()).argmax(0).numpy())
        best, numbers = classes.flatten().topk(min(MOST_QUERIES, classes.numel()))
        rows, inside = numbers // work.classes, masks > 0
        sure = (masks.sigmoid() * inside).flatten(1).sum(1) / inside.flatten(1).sum(1).clamp(min=1)
        some = [at for at, row in enumerate(rows.tolist()) if inside[row].any()]
        return ordered(
            photo.shape[:2],
            [int(numbers[at] % work.classes) for at in some],
            [float(best[at] * sure[rows[at]]) for at in some],
            masks=[inside[rows[at]].numpy() for at in some],
        )

    return find, f"EoMT, ViT-S/14 at {SIDE} px, {steps:,} steps"


def rf_detr(work: Work) -> Made:
    """RF-DETR on a ViT-S/14 by transformers' model, loss and trainer."""
    import transformers

    torch.manual_seed(work.seed)
    model = transformers.RfDetrForObjectDetection(
        transformers.RfDetrConfig(num_labels=work.classes, decoder_layers=2, num_windows=2)
    )
    from_start(work, lambda name: f"model.backbone.backbone.{name}", model)

    def collate(rows: list[Any]) -> dict[str, Any]:
        images = torch.stack([row["pixel_values"] for row in rows])
        return {"pixel_values": images, "labels": [row["labels"] for row in rows]}

    steps = trained(model, work, DETECTOR_SIDE, collate, 4)

    def find(photo: Pixels) -> FoundRegions:
        with torch.inference_mode():
            answer = model(squashed(photo, DETECTOR_SIDE)[None])
        best, numbers = answer.logits[0, :, : work.classes].sigmoid().flatten().topk(300)
        rows = answer.pred_boxes[0][numbers // work.classes]
        height, width = photo.shape[:2]
        x, y, across, down = (rows * torch.tensor([width, height, width, height])).T
        corners = torch.stack([x - across / 2, y - down / 2, x + across / 2, y + down / 2], dim=1)
        return ordered((height, width), (numbers % work.classes).tolist(), best.tolist(), boxes=corners.tolist())

    return find, f"RF-DETR, ViT-S/14 at {DETECTOR_SIDE} px, {steps:,} steps"


def yolo(work: Work) -> Made:
    """Ultralytics' smallest network from random weights, by its own trainer with its own settings."""
    import ultralytics
    from PIL import Image

    folder = Path(tempfile.mkdtemp())
    for split in ("train", "validation"):
        source = work.data.splits[split]
        for kind in ("images", "labels"):
            (folder / kind / split).mkdir(parents=True)
        for index in range(len(source)):
            regions = source.label(index)
            assert isinstance(regions, Regions)
            Image.fromarray(source.image(index)).save(folder / "images" / split / f"{index}.png")
            lines = boxes_lines(regions) if work.task == "boxes" else outlines_lines(regions)
            (folder / "labels" / split / f"{index}.txt").write_text("\n".join(lines))
    names = "\n".join(f"  {number}: {name}" for number, name in enumerate(work.data.class_names))
    (folder / "data.yaml").write_text(f"path: {folder}\ntrain: images/train\nval: images/validation\nnames:\n{names}\n")
    model = ultralytics.YOLO("yolo26n.yaml" if work.task == "boxes" else "yolo26n-seg.yaml")
    model.train(
        data=str(folder / "data.yaml"),
        time=work.left / 3600,
        device="cpu",
        seed=work.seed,
        project=str(folder),
        plots=False,
        verbose=False,
        workers=0,
    )
    epochs = len((Path(model.trainer.save_dir) / "results.csv").read_text().splitlines()) - 1

    def find(photo: Pixels) -> FoundRegions:
        answer = model.predict(photo[..., ::-1], conf=0.001, verbose=False, retina_masks=True, device="cpu")[0]
        numbers, scores = answer.boxes.cls.int().tolist(), answer.boxes.conf.tolist()
        if work.task == "boxes":
            return ordered(photo.shape[:2], numbers, scores, boxes=answer.boxes.xyxy.tolist())
        masks = [] if answer.masks is None else [mask.bool().numpy() for mask in answer.masks.data]
        some = [row for row, mask in enumerate(masks) if mask.any()]
        return ordered(
            photo.shape[:2],
            [numbers[row] for row in some],
            [scores[row] for row in some],
            masks=[masks[row] for row in some],
        )

    return find, f"yolo26n, {epochs} passes"


def boxes_lines(regions: Regions) -> list[str]:
    height, width = regions.size
    return [
        f"{number} {(left + right) / 2 / width:.6f} {(top + bottom) / 2 / height:.6f} "
        f"{(right - left) / width:.6f} {(bottom - top) / height:.6f}"
        for number, (left, top, right, bottom) in zip(regions.classes.tolist(), regions.boxes.tolist(), strict=True)
    ]


def outlines_lines(regions: Regions) -> list[str]:
    """Return the outer outline of each region, all that the format can hold."""
    import cv2

    lines, sides = [], np.array(regions.size[::-1], dtype=np.float64)
    for number, mask in zip(regions.classes.tolist(), regions.bitmaps(), strict=True):
        outlines, _ = cv2.findContours(mask.astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
        outline = max(outlines, key=len)[:, 0]
        if len(outline) > 2:  # points of an area
            lines.append(" ".join([str(number), *(f"{value:.6f}" for value in ((outline + 0.5) / sides).ravel())]))
    return lines


PEERS: Mapping[str, tuple[Callable[[Work], Made], tuple[str, ...]]] = {
    "u-net": (unet, ("semantic", "instances")),
    "transformers-eomt": (eomt, ("semantic", "instances")),
    "transformers-rf-detr": (rf_detr, ("boxes",)),
    "ultralytics": (yolo, ("instances", "boxes")),
}
assert VOID == IGNORED
