"""Which weights learn."""

import pytest
import torch

from tests.training.conftest import CONFIG, Run
from vitral.errors import RecipeError
from vitral.models.families import build
from vitral.training.optimization.adaptation import adapt, settle
from vitral.training.settings.sections import AdaptationSettings


@pytest.mark.parametrize("method", ["probe", "lora"])
def test_what_is_frozen_stays(run: Run, method: str) -> None:
    start = {name: tensor.clone() for name, tensor in build(CONFIG, seed=1).state_dict().items()}
    model, _ = run.train(adaptation={"method": method, "lora_rank": 2}, optimizer={"lr": 0.01})
    changed = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, start[name])}
    assert {"head.weight", "head.bias"} <= changed
    others = changed - {"head.weight", "head.bias"}
    if method == "probe":
        assert others == set()
    else:
        assert others == {f"encoder.{b}.{layer}.weight" for b in (0, 1) for layer in LAYERS}
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert model.state_dict().keys() == start.keys()


LAYERS = ("attention.qkv", "attention.out", "mlp.fc1", "mlp.fc2")


def test_low_rank_changes_start_at_nothing_and_go_into_the_weights() -> None:
    model = build(CONFIG, seed=0)
    torch.nn.init.normal_(model.head.weight)
    images = torch.randn(2, 3, 8, 8)
    model.eval()
    before = model(images)
    adapt(model, AdaptationSettings(method="lora", lora_rank=2), seed=0)
    torch.testing.assert_close(model(images), before)
    learned = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert learned < 0.6 * sum(p.numel() for p in model.parameters())
    for name, parameter in model.named_parameters():
        if name.endswith(".up"):
            torch.nn.init.normal_(parameter)
    adapted = model(images)
    assert not torch.allclose(adapted, before)
    settle(model)
    torch.testing.assert_close(model(images), adapted)
    assert not any("parametrizations" in name for name in model.state_dict())


def test_first_blocks_can_be_frozen() -> None:
    model = build(CONFIG, seed=0)
    adapt(model, AdaptationSettings(frozen_blocks=1), seed=0)
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    assert all(name.startswith(("encoder.0.", "patch_embedding", "class_token", "position")) for name in frozen)
    assert "encoder.0.norm1.weight" in frozen
    with pytest.raises(RecipeError, match="only 2 blocks"):
        adapt(model, AdaptationSettings(frozen_blocks=3), seed=0)
