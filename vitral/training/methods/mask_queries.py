"""Mask queries: queries learn the class and the mask of each region (EoMT, arXiv 2503.19108; tue-mps/eomt, training/)."""

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Literal, cast

import torch
from pydantic import Field, model_validator
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from vitral import distributed
from vitral.errors import ModelError
from vitral.models.dense.answers import QueryAnswers
from vitral.models.dense.mask_decoder import MaskDecoderConfig
from vitral.models.dense.queries import MaskHead
from vitral.models.model import Model, Outputs
from vitral.objectives.masks import MaskLoss
from vitral.objectives.matching import MaskCosts
from vitral.tasks.regions import Regions, RegionTargets
from vitral.tasks.task import Task
from vitral.training.methods.method import Context, Method
from vitral.training.methods.supervised import TrainingOutputs
from vitral.training.methods.views import Part
from vitral.training.optimization.optimizers import build_optimizer
from vitral.training.settings.methods import MethodSettings
from vitral.training.settings.recipe import Recipe
from vitral.training.settings.schedule import POLY_POWER
from vitral.training.settings.sections import Share, Strength


class MaskQueriesSettings(MethodSettings):
    """Learn the class and the mask of each region, each by the query that is nearest to it.

    Attributes:
        queries: The number of queries; None for as many as the start's head has, in a new one 200 for what is counted and 100
            for classes of pixels.
        joint_blocks: The number of blocks that they go through: the backbone's last, or a decoder's own; None for as many as
            the start's head has, in a new one 3 of the backbone's and 6 of a decoder's.
        class_weight: The weight of the classes' cross-entropy, in matching, too.
        mask_weight: The weight of the masks' cross-entropy.
        dice_weight: The weight of the masks' Dice loss.
        no_object: The weight of queries that have nothing to find, in the classes' cross-entropy.
        points: The number of points at which masks are compared.
        annealing: For each joint block the shares of the run between which its queries cease to see their own masks' patches
            alone; empty for phases of equal length, one block after another, with one phase before and one after.
        backbone_wait: The number of updates before the backbone begins to learn, with a warm-up of its own.
        decay_joint_blocks: Whether `optimizer.layer_decay` counts in the joint blocks, too.
    """

    mixes: ClassVar[bool] = False
    learns_regions: ClassVar[bool] = True

    name: Literal["mask-queries"] = "mask-queries"
    queries: int | None = Field(default=None, ge=1)
    joint_blocks: int | None = Field(default=None, ge=1)
    class_weight: Strength = 2.0
    mask_weight: Strength = 5.0
    dice_weight: Strength = 5.0
    no_object: Share = 0.1
    points: int = Field(default=12_544, ge=1)
    annealing: tuple[tuple[Share, Share], ...] = ()
    backbone_wait: int = Field(default=0, ge=0)
    decay_joint_blocks: bool = True

    @model_validator(mode="after")
    def _ends_after_its_start(self) -> "MaskQueriesSettings":
        if any(end <= start for start, end in self.annealing):
            raise ValueError("the annealing of each block must end after its start")
        return self

    def phases(self, joint_blocks: int) -> tuple[tuple[float, float], ...]:
        """Return the shares of the run between which the probability of each joint block falls from 1 to 0.

        Raises:
            ModelError: They are given for another number of blocks.
        """
        if self.annealing and len(self.annealing) != joint_blocks:
            raise ModelError(
                f"method.annealing has {len(self.annealing)} phases, but queries go through {joint_blocks} blocks; give one "
                "for each block, or leave it out."
            )
        count = joint_blocks + 2
        return self.annealing or tuple(((block + 1) / count, (block + 2) / count) for block in range(joint_blocks))


class MaskQueries(Method):
    """The losses of class and mask after each joint block, between queries and regions matched anew each time.

    Raises:
        ModelError: The network has no head of queries, or `annealing` is of another number of blocks.
    """

    Settings: ClassVar[type[MethodSettings]] = MaskQueriesSettings
    plain = True
    draws_by_image = True

    def __init__(self, network: Model, recipe: Recipe, task: Task, context: Context | None = None) -> None:
        super().__init__(network, recipe, task, context)
        head: Module = network.head
        if not isinstance(head, MaskHead):
            raise ModelError("The method 'mask-queries' needs a network with a head of queries.")
        self.settings = cast(MaskQueriesSettings, recipe.method)
        self.head = head
        self.phases = self.settings.phases(len(self.head.masking))
        self.module = TrainingOutputs(network)
        costs = MaskCosts(self.settings.class_weight, self.settings.mask_weight, self.settings.dice_weight)
        self.mask_loss = MaskLoss(costs, self.settings.points, self.settings.no_object)

    @classmethod
    def region_head(cls, recipe: Recipe) -> dict[str, int | None]:
        """Return how many queries go through how many blocks; see `Method.region_head`."""
        settings = cast(MaskQueriesSettings, recipe.method)
        blocks = "blocks" if recipe.head.kind == MaskDecoderConfig.kind else "joint_blocks"
        return {"queries": settings.queries, blocks: settings.joint_blocks}

    def optimizers(self) -> list[Optimizer]:
        """Return the recipe's optimizer, in which the backbone may wait, and the layers' rates fall as EoMT's do."""
        rates = self.recipe.optimizer
        optimizer = build_optimizer(self.module, self.network, rates)
        decay, blocks = rates.layer_decay, len(self.network.blocks())
        whole = decay ** (len(self.head.masking) - 0.5) if not self.settings.decay_joint_blocks else 1.0
        for group in optimizer.param_groups:
            # Theirs is 1 in the last block, and before the first what it is there; ours falls by one step more at both ends.
            scale = min(1.0, max(group["scale"] / decay, decay ** (blocks - 1)))
            group["scale"] = 1.0 if scale > whole else scale
        if self.settings.backbone_wait:
            self._let_backbone_wait(optimizer)
        return [optimizer]

    def _let_backbone_wait(self, optimizer: Optimizer) -> None:
        head = set(self.head.parameters())
        for group in list(optimizer.param_groups):
            waiting = [parameter for parameter in group["params"] if parameter not in head]
            learning = [parameter for parameter in group["params"] if parameter in head]
            if not learning:
                group["wait"] = self.settings.backbone_wait
            elif waiting:
                group["params"] = learning
                optimizer.add_param_group({**group, "params": waiting, "wait": self.settings.backbone_wait})

    @torch.no_grad()
    def before_step(self, gone: float) -> None:
        """Set with which probability each joint block's queries see their own masks' patches alone."""
        self.head.masking.copy_(torch.tensor([probability(gone, *phase) for phase in self.phases]))

    def loss(self, call: Callable[..., Any], part: Part) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss, summed over all layers' answers, and the last ones' parts."""
        outputs: Outputs = call(part.images, part.of_batch)
        answers = cast(QueryAnswers, outputs.logits)
        targets = RegionTargets(tuple(self._learned(part.targets)), part.images.device)
        classes, masks = targets.classes(), targets.bitmaps()
        count = torch.tensor(float(sum(map(len, classes))), device=part.images.device)
        num_masks = (distributed.total(count) / distributed.world()).clamp(min=1)
        loss, parts = self.mask_loss(answers, classes, masks, num_masks=num_masks)
        return loss, {f"{name}_loss": value.detach() for name, value in parts.items()}

    def _learned(self, targets: Any) -> Iterator[Regions]:  # noqa: ANN401  # RegionTargets
        """Return what each image's queries find: of a map of classes one region a class."""
        by_class = self.task.name == "semantic"
        return (Regions.of_map(regions.class_map()) if by_class else regions for regions in targets)


def probability(gone: float, start: float, end: float) -> float:
    """Return the probability that a mask is in use: 1 until a share of the run is gone, falling to 0 at another."""
    left = min(max((end - gone) / (end - start), 0.0), 1.0)
    return float(left**POLY_POWER)
