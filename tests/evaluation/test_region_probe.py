import numpy as np
import torch
from sklearn.linear_model import Ridge

from tests.discs import Discs, discs
from vitral.evaluation import region_probe
from vitral.evaluation.region_probe import SampledPixels, fit_regions, set_directions, set_head
from vitral.images.preprocessing import PHOTOS
from vitral.images.run_lengths import decode_mask
from vitral.models.dense.dense_model import DenseConfig, DenseModel
from vitral.models.dense.ridge import RidgeHeadConfig
from vitral.models.families import build
from vitral.models.pixels import PixelsConfig
from vitral.models.resnet import ResNetConfig
from vitral.tasks.components import object_masks
from vitral.tasks.dense import DenseTask
from vitral.tasks.instances import INSTANCES
from vitral.tasks.regions import Regions
from vitral.tasks.semantic import SEMANTIC

SIZE = (72, 96)


def _model(classes: int, **head: int | bool) -> DenseModel:
    backbone = ResNetConfig(stages=(1,), bottleneck=False) if head.get("directions") else PixelsConfig()
    config = DenseConfig(
        backbone=backbone,
        head=RidgeHeadConfig(width=64, **head),  # type: ignore[arg-type]
        num_classes=classes,
        image_size=SIZE,
    )
    model = build(config)
    assert isinstance(model, DenseModel)
    return model


def _score(model: DenseModel, task: DenseTask, *, photos: int = 8, bright: bool = False) -> float:
    data, preprocessing = discs(task, photos=photos, bright=bright), PHOTOS.with_size(SIZE)
    fit = fit_regions(model, data.splits["train"], preprocessing, seconds=60)
    assert fit is not None
    assert fit.photos == photos
    tally, source = task.tally_regions(data.class_names), data.splits["validation"]
    for index in range(len(source)):
        with torch.no_grad():
            logits = model(preprocessing(source.image(index))[None])
        found = task.find(logits, [preprocessing.geometry(*SIZE)])
        tally.add(found, [source.label(index)], [source.describe(index)])  # type: ignore[list-item]
    return next(iter(tally.figures().values()))


def test_it_tells_classes_of_pixels_that_no_threshold_tells() -> None:
    assert _score(_model(3), SEMANTIC) > 0.8


def test_it_finds_discs_one_by_one() -> None:
    assert _score(_model(2, objects=True), INSTANCES) > 0.6


def test_it_learns_with_a_backbones_maps_and_from_one_photo() -> None:
    assert _score(_model(3, directions=4), SEMANTIC) > 0.75
    assert _score(_model(3), SEMANTIC, photos=1, bright=True) > 0.5


def test_the_layer_is_ridge_regression() -> None:
    generator = torch.Generator().manual_seed(0)
    model = _model(3)
    head = model.head
    values = 5 + 2 * torch.randn(600, head.expand.in_channels, generator=generator)  # type: ignore[arg-type, union-attr]
    labels = (values[:, 0] > 5).long() + (values[:, 1] > 6).long()
    sampled = SampledPixels(values, labels, torch.arange(600) // 60)
    head.init_weights(generator)
    with torch.no_grad():
        penalty = set_head(head, sampled)  # type: ignore[arg-type]
        wide = head.wide(head.standardized(values.T[None, :, :, None]))  # type: ignore[operator]
        ours = head.classifier(wide)[0, :, :, 0].T.double().numpy()  # type: ignore[operator]
    features = wide[0, :, :, 0].T.double().numpy()
    targets = 2.0 * np.eye(3)[labels] - 1
    theirs = Ridge(alpha=penalty * 600).fit(features, targets).predict(features)
    factor = (ours * theirs).sum() / (theirs * theirs).sum()
    assert np.abs(ours - factor * theirs).max() < 1e-2 * factor


def test_fitting_again_gives_the_same_weights() -> None:
    model, source, preprocessing = _model(3), Discs(3, objects=False), PHOTOS.with_size(SIZE)
    fit_regions(model, source, preprocessing, seconds=60)
    first = {name: value.clone() for name, value in model.state_dict().items()}
    fit_regions(model, source, preprocessing, seconds=60)
    assert all(torch.equal(value, first[name]) for name, value in model.state_dict().items())


def test_directions_are_the_principal_components() -> None:
    model = _model(2, directions=3)
    channels = model.backbone.channels
    generator = torch.Generator().manual_seed(1)
    maps = torch.randn(1, channels, 16, 16, generator=generator) * torch.arange(1, channels + 1).view(1, -1, 1, 1)
    with torch.no_grad():
        set_directions(model.head, [maps[0]])  # type: ignore[arg-type]
        seen = model.head.project(maps)[0].flatten(1)  # type: ignore[operator]
    assert torch.allclose(seen @ seen.T / seen.shape[1], torch.eye(3), atol=1e-3)
    variances = np.linalg.eigvalsh(np.cov(maps[0].flatten(1).numpy(), bias=True))[-3:]
    norms = model.head.project.weight[..., 0, 0].detach().norm(dim=1)  # type: ignore[index, union-attr]
    np.testing.assert_allclose(norms.numpy() ** -2, variances, rtol=1e-3)


def test_too_little_time_leaves_it_unfitted() -> None:
    assert fit_regions(_model(3), Discs(3, objects=False), PHOTOS.with_size(SIZE), seconds=0.0) is None


def test_crowds_and_void_pixels_are_not_learned() -> None:
    masks = np.zeros((3, 24, 24), dtype=bool)
    masks[0, 2:10, 2:10] = masks[1, 12:22, 12:22] = masks[2, 2:10, 14:22] = True
    void = np.zeros((24, 24), dtype=bool)
    void[20:] = True
    regions = Regions.of_masks((24, 24), [0, 1, 0], list(masks), crowd=[False, False, True], ignored=void)
    config = RidgeHeadConfig(objects=True)
    targets = region_probe._targets(regions, PHOTOS.with_size(24), (24, 24), config, 2)
    assert targets[5, 5] == 0
    assert targets[15, 15] == 1
    assert targets[2, 5] == targets[12, 15] == 2  # rims
    assert targets[0, 0] == 3  # in none
    assert (targets[masks[2]] == -1).all()
    assert (targets[20:] == -1).all()


def test_boxes_without_masks_stand_for_ellipses() -> None:
    (runs,) = object_masks(Regions.of_boxes((40, 60), [0], [(10, 5, 41, 26)]))
    mask = decode_mask(runs, (40, 60))
    rows, columns = np.indices((40, 60)) + 0.5
    inside = ((columns - 25.5) / 15.5) ** 2 + ((rows - 15.5) / 10.5) ** 2
    assert mask[inside < 0.85].all()
    assert not mask[inside > 1.15].any()
