"""The weights of a `RidgeHead`, in closed form: ridge regression from filters and frozen maps to the classes of sampled pixels.

Half of a photo's sampled pixels are drawn evenly from the classes that it has, so that a rare one is learned, the other half
from all of its pixels, so that a common one is not found everywhere. The penalty is the one by which the pixels of every fourth
photo are told best by a fit on the other photos: pixels of one photo are too alike to judge one another.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional

from vitral.data.source import Source
from vitral.data.subset import spread_over
from vitral.evaluation.baselines import Stopwatch
from vitral.evaluation.probes import check_features, sharpness
from vitral.events import Listener, Progress, ignore
from vitral.images.geometry import Geometry, Resize
from vitral.images.preprocessing import Preprocessing
from vitral.models.dense.dense_model import DenseModel
from vitral.models.dense.ridge import RidgeHead, RidgeHeadConfig
from vitral.models.layers import seeded
from vitral.seeds import derive, generator
from vitral.tasks.components import UNCOUNTED, insides_and_rims, object_map, object_masks
from vitral.tasks.regions import VOID, Regions

PURPOSE = "look at photos"
MOST_PHOTOS = 1000
MOST_PIXELS = 100_000  # of all photos together
PIXELS_A_PHOTO = 1000
FEWEST_PHOTOS = 2
FOR_DIRECTIONS = 32  # photos whose maps say which directions of them vary most
JUDGING = 4  # every fourth photo judges the penalty
PENALTIES = tuple(10.0**exponent for exponent in range(-6, 2))  # shares of a pixel's own weight
AT_ONCE = 1 << 14  # pixels
LEAST_DEVIATION = 1e-4
SHARE = 0.7  # of the seconds, for looking at photos; the fit takes the rest

Values = Float[Tensor, "pixels values"]
Labels = Int64[Tensor, " pixels"]
Map = Int64[np.ndarray, "rows columns"]


@dataclass(frozen=True)
class SampledPixels:
    """Pixels of training photos: what filters and maps say of each, its class, and the number of the photo that it is of."""

    values: Values
    labels: Labels
    photos: Labels

    @property
    def judging(self) -> Tensor:
        """Which pixels judge the penalty: those of every fourth photo, of the last of fewer; of one photo every fourth."""
        last = int(self.photos.max())
        numbers = self.photos if last else torch.arange(len(self.photos))
        return numbers % JUDGING == (min(last, JUDGING - 1) if last else JUDGING - 1)


@dataclass(frozen=True)
class RidgeFit:
    """How a head was fitted: on how many pixels of how many photos, and by which penalty."""

    photos: int
    pixels: int
    penalty: float


@torch.no_grad()
def fit_regions(
    model: DenseModel,
    source: Source,
    preprocessing: Preprocessing,
    *,
    seconds: float,
    seed: int = 0,
    listener: Listener = ignore,
) -> RidgeFit | None:
    """Fit a network's `RidgeHead` on photos in place, its backbone frozen; None where the time is too short for two photos.

    Raises:
        ImageError: A photo cannot be read.
        ModelError: The network gives no finite numbers.
    """
    stopwatch = Stopwatch(SHARE * seconds)
    head = model.head
    assert isinstance(head, RidgeHead), "another head is not fitted in closed form"
    head.init_weights(seeded(model, seed))
    if head.project is not None:
        few = spread_over(source, FOR_DIRECTIONS)
        images = (preprocessing(few.image(index))[None] for index in range(len(few)))
        timely = (image for number, image in enumerate(images) if number < FEWEST_PHOTOS or stopwatch.left() > 0)
        set_directions(head, [model.encode(image).maps[0] for image in timely])
    sampled = sample_pixels(model, source, preprocessing, stopwatch, seed=seed, listener=listener)
    if sampled is None:
        return None
    penalty = set_head(head, sampled)
    return RidgeFit(int(sampled.photos.max()) + 1, len(sampled.labels), penalty)


def set_directions(head: RidgeHead, maps: Sequence[Float[Tensor, "channels rows columns"]]) -> None:
    """Make a head see the directions in which maps vary most, each at a standard deviation of 1."""
    assert head.project is not None, "the head sees no maps"
    places = torch.cat([each.flatten(1).T for each in maps]).double()
    check_features(places)
    mean = places.mean(dim=0)
    squares, vectors = torch.linalg.eigh((places - mean).T @ (places - mean) / len(places))
    count = head.project.out_channels
    scaled = vectors[:, -count:] / squares[-count:].clamp_min(LEAST_DEVIATION**2).sqrt()
    _set_layer(head.project, scaled, -mean @ scaled)


def _set_layer(layer: nn.Conv2d, weight: Float[Tensor, "channels outputs"], bias: Float[Tensor, " outputs"]) -> None:
    """Give a layer over the channels of each place its weights and biases."""
    assert layer.bias is not None, "it was made with biases"
    layer.weight.copy_(weight.T[..., None, None])
    layer.bias.copy_(bias)


def sample_pixels(
    model: DenseModel,
    source: Source,
    preprocessing: Preprocessing,
    stopwatch: Stopwatch,
    *,
    seed: int,
    listener: Listener = ignore,
) -> SampledPixels | None:
    """Return pixels of as many photos as there is time for; None where that is not even two, or nothing in them counts."""
    head, some = model.head, spread_over(source, MOST_PHOTOS)
    assert isinstance(head, RidgeHead), "another head is not fitted in closed form"
    order = generator(seed, "photos of the first answer").permutation(len(some)).tolist()
    a_photo = min(PIXELS_A_PHOTO, MOST_PIXELS // len(some))
    taken: list[tuple[Values, Labels]] = []
    for number, index in enumerate(order):
        if stopwatch.left() <= 0:
            break
        image, label = some.image(index), some.label(index)
        assert isinstance(label, Regions), "the label of another task"
        known = head.known(model.backbone, preprocessing(image)[None])[0]
        targets = _targets(label, preprocessing, (known.shape[1], known.shape[2]), head.config, model.num_classes)
        places = _drawn(targets.reshape(-1), a_photo, seed=derive(seed, "pixels of the first answer", index))
        taken.append((known.flatten(1).T[places].float(), torch.from_numpy(targets.reshape(-1)[places])))
        listener(Progress(PURPOSE, number + 1, len(order)))
    if len(taken) < min(FEWEST_PHOTOS, len(some)):
        return None
    counts = [len(labels) for _, labels in taken if len(labels)]
    if not counts:
        return None
    values, labels = (torch.cat(each) for each in zip(*taken, strict=True))
    check_features(values)
    return SampledPixels(values, labels, torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts)))


def _targets(
    regions: Regions, preprocessing: Preprocessing, grid: tuple[int, int], config: RidgeHeadConfig, classes: int
) -> Map:
    """Return the class of each place of a view of a photo, or `UNCOUNTED`; of objects those of `RidgeHeadConfig.objects`."""
    height, width = regions.size
    view = Geometry(regions.size, (*preprocessing.geometry(height, width).steps, Resize(*grid)))
    if not config.objects:
        labels = regions.follow(view).class_map()
        return np.where(labels == VOID, UNCOUNTED, labels)
    seen = replace(regions, masks=object_masks(regions)).follow(view)
    objects, (rows, columns) = object_map(seen), view.places()
    objects[(rows < 0) | (columns < 0)] = UNCOUNTED
    return insides_and_rims(objects, seen.classes, classes)


def _drawn(labels: Int64[np.ndarray, " places"], count: int, *, seed: int) -> Int64[np.ndarray, " pixels"]:
    """Return places: half of them evenly from the classes that there are, the others from all that count."""
    rng = generator(seed, "places")
    every = np.flatnonzero(labels != UNCOUNTED)
    if not len(every):
        return every
    classes = np.unique(labels[every])
    each = count // (2 * len(classes))
    balanced = [rng.choice(np.flatnonzero(labels == number), each) for number in classes]
    return np.concatenate([*balanced, rng.choice(every, count // 2)])


def set_head(head: RidgeHead, sampled: SampledPixels) -> float:
    """Fit a head's last layer on pixels, and return the penalty that was chosen."""
    outputs, judging = head.classifier.out_channels, sampled.judging
    deviations = sampled.values.std(dim=0, correction=0)
    head.mean.copy_(sampled.values.mean(dim=0)[:, None, None])
    # What is the same in all of these pixels says nothing, and would say too much where it is another.
    head.scale.copy_(torch.where(deviations > LEAST_DEVIATION, 1 / deviations, 0.0)[:, None, None])

    def wide(chosen: Tensor) -> Iterator[tuple[Values, Labels]]:
        for part in torch.split(chosen.nonzero()[:, 0], AT_ONCE):
            maps = sampled.values[part].T[None, :, :, None]  # pixels as the places of one image
            yield head.wide(head.standardized(maps))[0, :, :, 0].T, sampled.labels[part]

    judged, rest = _Products(outputs), _Products(outputs)
    for products, chosen in ((judged, judging), (rest, ~judging)):
        for values, labels in wide(chosen):
            products.add(values, labels)
    scores = [torch.cat([rest.scores(values, penalty) for values, _ in wide(judging)]) for penalty in PENALTIES]
    truth = sampled.labels[judging]
    right = [float((each.argmax(dim=1) == truth).double().mean()) for each in scores]
    best = max(range(len(PENALTIES)), key=lambda index: (right[index], index))
    penalty, factor = PENALTIES[best], sharpness(scores[best], truth)
    weight, bias = (judged + rest).layer(penalty)
    _set_layer(head.classifier, factor * weight, factor * bias)
    return penalty


class _Products:
    """The sums that least squares with targets of -1 and +1 need, of pixels that come in parts."""

    def __init__(self, outputs: int) -> None:
        self.outputs, self.count = outputs, 0
        self.squares: Tensor | float = 0.0
        self.targets: Tensor | float = 0.0

    def add(self, values: Values, labels: Labels) -> None:
        """Add some pixels."""
        padded = functional.pad(values, (0, 1), value=1.0)
        targets = 2.0 * functional.one_hot(labels, self.outputs).to(values.dtype) - 1.0
        self.squares = self.squares + (padded.T @ padded).double()
        self.targets = self.targets + (padded.T @ targets).double()
        self.count += len(labels)

    def __add__(self, other: "_Products") -> "_Products":
        both = _Products(self.outputs)
        both.squares, both.targets = self.squares + other.squares, self.targets + other.targets
        both.count = self.count + other.count
        return both

    def layer(self, penalty: float) -> tuple[Float[Tensor, "values outputs"], Float[Tensor, " outputs"]]:
        """Return weights and biases; the penalty is on the weights alone, as a share of a pixel's."""
        assert isinstance(self.squares, Tensor), "there are no pixels"
        penalties = torch.full((len(self.squares),), penalty * self.count, dtype=torch.float64)
        penalties[-1] = 0.0
        solved = torch.linalg.solve(self.squares + penalties.diag(), self.targets)
        return solved[:-1], solved[-1]

    def scores(self, values: Values, penalty: float) -> Float[Tensor, "pixels outputs"]:
        """Return what the fit says of pixels."""
        weight, bias = self.layer(penalty)
        return (values.double() @ weight + bias).float()
