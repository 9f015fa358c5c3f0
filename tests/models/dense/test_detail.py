import dataclasses

import torch

from tests.cases import every_case
from vitral.models.catalog import variant
from vitral.models.dense.dense_model import DenseModel, with_region_head
from vitral.models.dense.detail import DetailHead, DetailHeadConfig
from vitral.models.dense.ridge import RidgeHead, RidgeHeadConfig
from vitral.models.families import build
from vitral.models.layers import FeatureMaps

SIZE = (72, 96)  # no multiple of 32: maps are rounded up on their way down


def _model(name: str, head: DetailHeadConfig | RidgeHeadConfig, size: tuple[int, int] = SIZE) -> DenseModel:
    backbone = build(dataclasses.replace(variant(name), image_size=size))
    backbone.init_weights(0)
    return with_region_head(backbone, head, 3, seed=0).eval()


@every_case("name", ["efficientnet-lite0", "resnet-18", "bit-r50x1"])
def test_a_config_says_what_finer_maps_its_network_gives(name: str) -> None:
    config = variant(name)
    with torch.no_grad():
        encoded = build(dataclasses.replace(config, image_size=(64, 128))).encode(torch.zeros(1, 3, 64, 128))
    assert isinstance(encoded, FeatureMaps)
    given = [(64 // maps.shape[2], 128 // maps.shape[3], maps.shape[1]) for maps in encoded.finer]
    assert given == [(stride, stride, channels) for stride, channels in config.finer]
    assert len(given) >= 3


@every_case("name", ["efficientnet-lite0", "resnet-18", "vit-nano4"])
def test_it_answers_at_every_pixel(name: str) -> None:
    model = _model(name, DetailHeadConfig())
    with torch.no_grad():
        assert model(torch.randn(2, 3, *SIZE)).shape == (2, 3, *SIZE)


def test_it_begins_with_the_answer_in_closed_form_and_learns_beside_it() -> None:
    generator = torch.Generator().manual_seed(1)
    fitted = _model("efficientnet-lite0", RidgeHeadConfig())
    assert isinstance(fitted.head, RidgeHead)
    with torch.no_grad():
        for tensor in fitted.head.state_dict().values():
            tensor.uniform_(0.1, 1.0, generator=generator)
    model, images = _model("efficientnet-lite0", DetailHeadConfig()), torch.randn(2, 3, *SIZE, generator=generator)
    assert isinstance(model.head, DetailHead)
    assert not model(images).any()
    assert model.take_head(fitted)
    assert not fitted.take_head(fitted), "a head in closed form begins with no other"
    with torch.no_grad():
        wanted = torch.nn.functional.interpolate(fitted(images), SIZE, mode="bilinear", align_corners=False)
        torch.testing.assert_close(model(images), wanted)
        with torch.autocast("cpu", torch.bfloat16):
            torch.testing.assert_close(model(images), wanted)
    model.train()(images).square().mean().backward()
    learning = {name for name, value in model.head.named_parameters() if value.grad is not None}
    assert "classifier.weight" in learning
    assert not any(name.startswith("first.") for name in learning)
    torch.optim.SGD(model.head.parameters(), lr=0.1).step()
    with torch.no_grad():
        changed = model.eval()(images)
    assert (changed - wanted).abs().max() > 0.01
