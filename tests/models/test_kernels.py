"""Every kernel that is there for speed against the plain formula that it must equal, forward and in its gradients."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.cases import every_case
from vitral.models import layers
from vitral.models.attention import Attention, Mask, attend, attention_scores
from vitral.models.families import create_model
from vitral.models.layers import (
    HAS_FUSED_BF16,
    HAS_FUSED_LINEAR,
    Linear,
    TanhGelu,
    fused_linear,
    packed_attention,
)


def plain_attention(projected: Tensor, num_heads: int, added: Tensor | None = None) -> Tensor:
    """The paper's appendix A, equations 5 to 7, head by head: what `packed_attention` must equal."""
    batch, tokens, width = projected.shape
    query, key, value = projected.view(batch, tokens, 3, num_heads, -1).permute(2, 0, 3, 1, 4)
    scores = query * query.shape[-1] ** -0.5 @ key.transpose(-2, -1)
    probabilities = (scores if added is None else scores + added).softmax(dim=-1)
    return (probabilities @ value).transpose(1, 2).reshape(batch, tokens, width // 3)


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def with_gradients(result: Tensor, *inputs: Tensor) -> list[Tensor]:
    weights = drawn(*result.shape, seed=9).to(result.dtype)
    return [result.detach(), *torch.autograd.grad((result * weights).sum(), inputs)]


@every_case(("batch", "tokens", "heads", "head_dim"), [(2, 5, 3, 4), (1, 1, 1, 2), (3, 7, 2, 1)])
def test_packed_attention_is_the_formula_and_so_are_its_gradients(
    batch: int, tokens: int, heads: int, head_dim: int
) -> None:
    projected = drawn(batch, tokens, 3 * heads * head_dim).requires_grad_()
    ours = with_gradients(packed_attention(projected, heads), projected)
    plain = with_gradients(plain_attention(projected, heads), projected)
    torch.testing.assert_close(ours, plain, rtol=1e-10, atol=1e-12)


@every_case(("batch", "tokens", "heads", "head_dim"), [(2, 5, 3, 4), (3, 7, 2, 1)])
def test_what_is_added_to_the_scores_and_its_gradient_are_the_formulas(
    batch: int, tokens: int, heads: int, head_dim: int
) -> None:
    projected = drawn(batch, tokens, 3 * heads * head_dim).requires_grad_()
    added = drawn(heads, tokens, tokens, seed=1).requires_grad_()
    ours = with_gradients(packed_attention(projected, heads, added), projected, added)
    plain = with_gradients(plain_attention(projected, heads, added), projected, added)
    torch.testing.assert_close(ours, plain, rtol=1e-10, atol=1e-12)


def test_the_plain_attention_is_the_papers_written_out() -> None:
    projected = drawn(1, 3, 12)
    query, key, value = (projected[0, :, start : start + 4] for start in (0, 4, 8))
    for head in range(2):
        part = slice(2 * head, 2 * head + 2)
        scores = query[:, part] @ key[:, part].T / 2**0.5
        expected = (scores.exp() / scores.exp().sum(dim=1, keepdim=True)) @ value[:, part]
        torch.testing.assert_close(plain_attention(projected, 2)[0, :, part], expected)


@pytest.mark.skipif(not HAS_FUSED_LINEAR, reason="this torch has no fused linear layer")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(6, 4), (2, 3, 4), (1, 1, 4)])
def test_the_fused_linear_layer_is_the_formula_and_so_are_its_gradients(shape: tuple[int, ...], bias: bool) -> None:
    inputs = [drawn(*shape).float(), drawn(5, 4, seed=1).float(), *([drawn(5, seed=2).float()] if bias else [])]
    for tensor in inputs:
        tensor.requires_grad_()
    ours = with_gradients(fused_linear(inputs[0], inputs[1], inputs[2] if bias else None), *inputs)
    plain = with_gradients(functional.linear(*inputs), *inputs)
    torch.testing.assert_close(ours, plain, rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(not HAS_FUSED_LINEAR, reason="this torch has no fused linear layer")
def test_the_fused_linear_layer_leaves_frozen_weights_alone() -> None:
    layer = Linear(4, 5)
    layer.requires_grad_(requires_grad=False)
    values = drawn(2, 3, 4, dtype=torch.bfloat16).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        layer(values).sum().backward()
    assert values.grad is not None
    assert layer.weight.grad is None
    assert layer.bias.grad is None


def test_tanh_gelu_is_the_originals_wherever_it_counts() -> None:
    values = torch.linspace(-6, 6, 1001)
    torch.testing.assert_close(TanhGelu()(values), functional.gelu(values, approximate="tanh"))
    with torch.no_grad():
        low = values.bfloat16()
        assert torch.equal(TanhGelu()(low), functional.gelu(low, approximate="tanh"))
    trained = TanhGelu()(values.bfloat16().requires_grad_()).detach().float()
    assert float((trained - functional.gelu(values.bfloat16().float(), approximate="tanh")).abs().max()) < 0.02


def test_tanh_gelu_learns_by_the_gradient_of_a_form_within_a_thousandth_of_its_own() -> None:
    values = torch.linspace(-6, 6, 1001, dtype=torch.float64).requires_grad_()
    tanh, exact = (
        torch.autograd.grad(functional.gelu(values, approximate=form).sum(), values)[0] for form in ("tanh", "none")
    )
    assert float((tanh - exact).abs().max()) < 1e-3
    low = values.detach().bfloat16().requires_grad_()
    (ours,) = torch.autograd.grad(TanhGelu()(low).float().sum(), low)
    assert float((ours.double() - tanh).abs().max()) < 0.02


MASK = torch.tensor([True, True, False, True, False]).expand(2, 1, 5, 5)


@every_case("mask", [None, MASK])
def test_attention_for_training_in_bfloat16_is_that_of_torch(mask: Mask | None) -> None:
    query, key, value = (drawn(2, 3, 5, 8, seed=seed) for seed in range(3))
    expected = attention_scores(query, key)
    if mask is not None:
        expected = expected.masked_fill(~mask, -1e9)
    expected = (expected.softmax(dim=-1) @ value).float()
    fused = attend(query.float(), key.float(), value.float(), mask=mask)
    torch.testing.assert_close(fused, expected, atol=1e-5, rtol=1e-5)
    plain = attend(query.bfloat16().requires_grad_(), key.bfloat16(), value.bfloat16(), mask=mask)
    torch.testing.assert_close(plain.float(), expected, atol=0.03, rtol=0.03)


def test_the_kernels_are_taken_in_training_in_bfloat16_alone() -> None:
    layer = Attention(8, 2)
    layer.init_weights(torch.Generator().manual_seed(0))
    tokens = drawn(2, 3, 8, dtype=torch.float32)

    def functions(result: Tensor) -> set[str]:
        names, left = set(), [result.grad_fn]
        while left:
            node = left.pop()
            if node is not None:
                names.add(node.name())
                left += [parent for parent, _ in node.next_functions]
        return names

    ours = {"_PackedAttentionBackward"} | ({"_FusedLinearBackward"} if HAS_FUSED_BF16 else set())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert ours <= functions(layer(tokens.bfloat16().requires_grad_()))
    assert not ours & functions(layer(tokens.clone().requires_grad_()))


def test_bf16_training_kernels_give_the_gradients_of_plain_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    model = create_model("vit-ti16", num_classes=10, image_size=64).train()
    nn.init.normal_(model.head.weight)
    images = torch.randn(4, 3, 64, 64)

    def gradients(dtype: torch.dtype | None) -> Tensor:
        model.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype is not None):
            logits = model(images)
        logits.float().square().sum().backward()
        return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    exact, ours = gradients(None), gradients(torch.bfloat16)
    monkeypatch.setattr(layers, "trains_in_bf16_on_cpu", lambda values: False)
    plain = gradients(torch.bfloat16)
    assert not torch.equal(ours, plain)
    errors = [float((found - exact).norm() / exact.norm()) for found in (ours, plain)]
    assert errors[0] < 1.3 * errors[1] + 0.005
