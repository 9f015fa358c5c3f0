"""A backbone of any family with a head whose answer is about regions of the image."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from vitral.described import read_described
from vitral.errors import ModelError
from vitral.models.dense.detail import DetailHead, DetailHeadConfig
from vitral.models.dense.head import DenseHead, HeadConfig
from vitral.models.dense.linear import LinearHead, LinearHeadConfig
from vitral.models.dense.mask_decoder import MaskDecoder, MaskDecoderConfig
from vitral.models.dense.points import PointsHead, PointsHeadConfig
from vitral.models.dense.queries import QueryHead, QueryHeadConfig
from vitral.models.dense.ridge import RidgeHead, RidgeHeadConfig
from vitral.models.dense.rims import RimHead, RimHeadConfig
from vitral.models.layers import BatchPart, FeatureMaps, TokenGrid, seeded
from vitral.models.model import Features, Images, Model, ModelConfig, Outputs, PatchGrid, Use

# The heads by kind: the class of the config, and that of the head.
HEADS: dict[str, tuple[type[HeadConfig], type[DenseHead]]] = {
    LinearHeadConfig.kind: (LinearHeadConfig, LinearHead),
    DetailHeadConfig.kind: (DetailHeadConfig, DetailHead),
    RimHeadConfig.kind: (RimHeadConfig, RimHead),
    QueryHeadConfig.kind: (QueryHeadConfig, QueryHead),
    MaskDecoderConfig.kind: (MaskDecoderConfig, MaskDecoder),
    RidgeHeadConfig.kind: (RidgeHeadConfig, RidgeHead),
    PointsHeadConfig.kind: (PointsHeadConfig, PointsHead),
}
CLASSIFIER = "classifier"  # what every head, and every part of one, calls the layer that tells its classes
NO_CLASS_OF_AN_IMAGE = "its answer is about regions, not about the image as a whole"


@dataclass(frozen=True, kw_only=True, slots=True)
class DenseConfig(ModelConfig):
    """What a backbone with a head is; size and rates are handed to the backbone."""

    backbone: ModelConfig
    head: HeadConfig

    def __post_init__(self) -> None:
        """Hand size and rates to the backbone, and refuse what cannot be built."""
        ModelConfig.__post_init__(self)
        handed = ("image_size", "dropout", "attention_dropout", "stochastic_depth")
        changes = {name: getattr(self, name) for name in handed}
        object.__setattr__(self, "backbone", dataclasses.replace(self.backbone, num_classes=1, **changes))
        self.head.check(self.backbone)

    @property
    def patch_grid(self) -> PatchGrid | None:
        """Where the backbone's tokens lie."""
        return self.backbone.patch_grid

    @property
    def size_step(self) -> int:
        """A number of pixels of which the sides of an image may be any multiple."""
        return self.backbone.size_step

    def built_head(self, channels: int) -> DenseHead:
        """Return the head, with undefined weights, on maps of so many channels."""
        return HEADS[self.head.kind][1](self.head, self.backbone, channels, self.num_classes)

    @property
    def region_head(self) -> HeadConfig:
        """The config of the head."""
        return self.head

    def obstacle_to(self, use: Use) -> str:
        """Return what keeps the network from a use of networks that classify; export alone is the same."""
        return "" if use == "export" else NO_CLASS_OF_AN_IMAGE


class DenseModel(Model):
    """A backbone, whose own head goes, and a head; weights are undefined until `init_weights` or a checkpoint."""

    config: DenseConfig
    head: DenseHead  # type: ignore[assignment]  # it is no linear layer

    def __init__(self, config: DenseConfig, backbone: Model) -> None:
        super().__init__()
        self.config = config
        channels = backbone.channels
        backbone.drop_head()
        self.backbone = backbone
        self.head = config.built_head(channels)

    def forward(self, images: Images) -> Any:  # noqa: ANN401  # as the head answers
        """Return the head's answer; see `DenseHead.answer`."""
        return self.head.answer(self.backbone, images)

    def outputs(self, images: Images, part: BatchPart | None = None) -> Outputs:
        """Return the head's answer in training."""
        return Outputs(logits=self.head.answer(self.backbone, images, part))

    def encode(self, images: Images, part: BatchPart | None = None) -> TokenGrid | FeatureMaps:
        """Return what the backbone makes of the images."""
        return self.backbone.encode(images, part)

    def pool(self, encoded: TokenGrid | FeatureMaps) -> Features:
        """Return the mean of the last maps: what the network knows of an image as a whole."""
        return encoded.maps.mean(dim=(2, 3))

    @property
    def num_features(self) -> int:
        """The width of what `features` returns."""
        return self.backbone.channels

    def replace_head(self, num_classes: int, *, seed: int = 0) -> None:
        """Replace what tells the classes by what is drawn from `seed`; the rest of the head stays.

        So do EoMT's authors where they train it further (tue-mps/eomt, load_ckpt_class_head). Of layers whose width follows the
        number of classes those that change are drawn, too.
        """
        trained = self.head.state_dict()
        self.config = dataclasses.replace(self.config, num_classes=num_classes)
        like = next(self.head.parameters())
        with torch.device("meta"):
            head = self.config.built_head(self.backbone.channels)
        self.head = head.to(like.dtype).to_empty(device=like.device)
        self.head.init_weights(seeded(self, seed))
        drawn = self.head.state_dict()
        kept = [
            name for name in drawn if CLASSIFIER not in name.split(".") and drawn[name].shape == trained[name].shape
        ]
        self.head.load_state_dict({name: trained[name] for name in kept}, strict=False)

    def take_head(self, fitted: Model) -> bool:
        """Begin with a head that was fitted in closed form, where this one has a place for it; return whether it has."""
        return self.head.take(fitted.head)

    def without_region_head(self) -> Model:
        """Return the backbone."""
        return self.backbone

    def resize(self, image_size: int | tuple[int, int]) -> None:
        """Make the network take images of another size; see `Model.resize`."""
        self.backbone.resize(image_size)
        self.config = dataclasses.replace(self.config, image_size=self.backbone.image_size)
        self.head.resize(self.config.backbone)

    def apply_rates(self) -> None:
        """Hand the config's rates to the backbone."""
        self.backbone.config = self.config.backbone
        self.backbone.apply_rates()

    def blocks(self) -> list[nn.Module]:
        """Return the backbone's blocks."""
        return self.backbone.blocks()

    def no_weight_decay(self) -> set[str]:
        """Return the backbone's parameters that weight decay leaves alone, and the head's biases and norms."""
        backbone = {f"backbone.{name}" for name in self.backbone.no_weight_decay()}
        return backbone | {f"head.{name}" for name, value in self.head.named_parameters() if value.ndim <= 1}

    @torch.no_grad()
    def init_weights(self, seed: int) -> None:
        """Draw backbone and head from `seed`."""
        self.backbone.init_weights(seed)
        self.head.init_weights(seeded(self, seed))

    def fixed_tensors(self) -> dict[str, torch.Tensor]:
        """Return the backbone's tensors that are computed, not learned."""
        return {f"backbone.{name}": value for name, value in self.backbone.fixed_tensors().items()}

    @property
    def maps_at(self) -> str:
        """The name by which `record` finds the backbone's last maps."""
        return f"backbone.{self.backbone.maps_at}"


def with_region_head(model: Model, head: HeadConfig, num_classes: int, *, seed: int) -> DenseModel:
    """Return a network with a new head, drawn from `seed`; one that has a head of that kind keeps it, but for the classes.

    Raises:
        ModelError: The head cannot stand on the network.
    """
    if isinstance(model, DenseModel) and model.config.head.kind == head.kind:
        model.replace_head(num_classes, seed=seed)
        return model
    backbone = model.without_region_head()
    own = backbone.config
    config = DenseConfig(
        backbone=own,
        head=head,
        num_classes=num_classes,
        image_size=own.image_size,
        dropout=own.dropout,
        attention_dropout=own.attention_dropout,
        stochastic_depth=own.stochastic_depth,
    )
    like = next(backbone.parameters())
    with torch.device("meta"):
        dense = DenseModel(config, backbone)
    dense.head.to(like.dtype).to_empty(device=like.device)
    dense.head.init_weights(seeded(dense, seed))
    backbone.config = config.backbone
    return dense.train(model.training)


def head_to_json(head: HeadConfig) -> dict[str, Any]:
    """Return a head's config as JSON values, its kind included."""
    return {"kind": head.kind, **dataclasses.asdict(head)}


def head_from_json(values: object) -> HeadConfig:
    """Return the config that `head_to_json` wrote.

    Raises:
        ModelError: An unknown kind, an unknown or missing field, or an impossible value.
    """
    named = dict(values) if isinstance(values, Mapping) else {}
    kind = named.pop("kind", None)
    if not isinstance(kind, str) or kind not in HEADS:
        raise ModelError(f"The head {kind!r} is not known to this version; it knows {', '.join(HEADS)}.")
    return read_described(HEADS[kind][0], named, "The head", ModelError)
