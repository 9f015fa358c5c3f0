"""Every layout against what the two libraries compute with the same numbers: a dense layer, a convolution, attention."""

import re

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from tests.cases import every_case
from vitral.weights import layouts
from vitral.weights.layouts import Layout, Rule, renamed, rule

DIM, HEADS, HEAD_DIM = 6, 3, 2
GENERATOR = torch.Generator().manual_seed(0)


def random(*shape: int) -> Tensor:
    return torch.randn(shape, generator=GENERATOR, dtype=torch.float64)


def goes_round(layout: Layout, theirs: list[Tensor]) -> list[Tensor]:
    """Return ours, after checking that theirs come back unchanged, every tensor separate and contiguous."""
    ours = layout.read([tensor.clone() for tensor in theirs])
    assert all(tensor.is_contiguous() for tensor in ours)
    back = layout.write([tensor.clone() for tensor in ours])
    assert len(back) == len(theirs)
    for one, other in zip(back, theirs, strict=True):
        assert one.shape == other.shape
        assert torch.equal(one, other)
    return ours


def written_contiguous(layout: Layout, theirs: list[Tensor]) -> bool:
    """Tell whether what goes into a file is contiguous, which the safetensors format asks for."""
    return all(tensor.is_contiguous() for tensor in layout.write(layout.read(theirs)))


def test_a_flax_dense_kernel_maps_inputs_to_outputs() -> None:
    kernel, inputs = random(4, 7), random(2, 4)
    (weight,) = goes_round(layouts.TRANSPOSED, [kernel])
    torch.testing.assert_close(functional.linear(inputs, weight), inputs @ kernel)
    assert written_contiguous(layouts.TRANSPOSED, [kernel])


def test_a_flax_convolution_is_height_width_in_out() -> None:
    kernel, images = random(3, 2, 4, 5), random(1, 4, 6, 8)
    (weight,) = goes_round(layouts.CONVOLUTION, [kernel])
    expected = np.zeros((5, 4, 7))
    for row, column in np.ndindex(4, 7):
        part = images[0, :, row : row + 3, column : column + 2].numpy()
        expected[:, row, column] = np.einsum("ihw,hwio->o", part, kernel.numpy())
    np.testing.assert_allclose(functional.conv2d(images, weight)[0].numpy(), expected)
    assert written_contiguous(layouts.CONVOLUTION, [kernel])


def test_a_convolution_of_kernel_one_is_a_dense_layer() -> None:
    kernel, inputs = random(1, 1, 4, 7), random(2, 4)
    (weight,) = goes_round(layouts.DENSE_KERNEL, [kernel])
    torch.testing.assert_close(functional.linear(inputs, weight), inputs @ kernel[0, 0])
    pointwise = random(7, 4, 1, 1)
    (weight,) = goes_round(layouts.POINTWISE, [pointwise])
    expected = functional.conv2d(inputs[:, :, None, None], pointwise)[:, :, 0, 0]
    torch.testing.assert_close(functional.linear(inputs, weight), expected)


def test_a_broadcast_norm_and_a_class_row() -> None:
    scale = random(1, 1, 1, 5)
    (ours,) = goes_round(layouts.BROADCAST_NORM, [scale])
    assert ours.tolist() == scale[0, 0, 0].tolist()
    token, table = random(1, 1, 6), random(1, 4, 6)
    ours_token, ours = goes_round(layouts.CLASS_ROW, [token, table])
    assert torch.equal(ours_token, token)
    assert torch.equal(ours[:, 1:], table)
    assert not ours[:, 0].any()
    position = random(1, 1, 6)
    written_token, written_table = layouts.CLASS_ROW.write([token, torch.cat([position, table], dim=1)])
    assert torch.equal(written_token, token + position)
    assert torch.equal(written_table, table)
    assert layouts.SAME.read([scale, table]) == [scale, table]
    assert layouts.SAME.write([scale, table]) == [scale, table]


@every_case("parts", [1, 2, 3])
def test_flax_attention_kernels_give_each_head_its_own_channels(parts: int) -> None:
    """flax's DenseGeneral: einsum("bd,dhk->bhk") with a bias (h, k); ours is one linear layer, part after part."""
    kernels = [random(DIM, HEADS, HEAD_DIM) for _ in range(parts)]
    biases = [random(HEADS, HEAD_DIM) for _ in range(parts)]
    (weight,) = goes_round(layouts.attention_kernels(HEADS), kernels)
    (bias,) = goes_round(layouts.attention_biases(HEADS, parts), biases)
    inputs = random(5, DIM)
    found = functional.linear(inputs, weight, bias).view(5, parts, HEADS, HEAD_DIM)
    for part in range(parts):
        expected = torch.einsum("bd,dhk->bhk", inputs, kernels[part]) + biases[part]
        torch.testing.assert_close(found[:, part], expected)
    assert written_contiguous(layouts.attention_kernels(HEADS), kernels)
    assert written_contiguous(layouts.attention_biases(HEADS, parts), biases)


def test_a_flax_output_kernel_joins_the_heads() -> None:
    kernel, heads = random(HEADS, HEAD_DIM, 5), random(5, HEADS, HEAD_DIM)
    (weight,) = goes_round(layouts.attention_output(HEADS), [kernel])
    expected = torch.einsum("bhk,hkd->bd", heads, kernel)
    torch.testing.assert_close(functional.linear(heads.flatten(1), weight), expected)
    assert written_contiguous(layouts.attention_output(HEADS), [kernel])


def test_parts_are_joined_and_split_along_the_outputs() -> None:
    theirs = [random(3, 4) for _ in range(3)]
    (joint,) = goes_round(layouts.joined(3), theirs)
    assert torch.equal(joint, torch.cat(theirs, dim=0))
    assert written_contiguous(layouts.joined(3), theirs)
    ours = goes_round(layouts.split(2), [random(6, 4)])
    assert [tuple(tensor.shape) for tensor in ours] == [(3, 4), (3, 4)]


def test_a_rule_is_between_one_tensor_and_one_and_changes_nothing_unless_told() -> None:
    assert rule("ours", "theirs") == Rule(("ours",), ("theirs",), layouts.SAME)
    assert rule("ours", "theirs", layouts.TRANSPOSED) == Rule(("ours",), ("theirs",), layouts.TRANSPOSED)


def test_names_are_rewritten_one_pattern_after_the_other() -> None:
    renames = [(r"^encoder\.(\d+)\.", r"blocks.\1."), (r"^blocks\.0", "first"), ("weight$", "kernel")]

    def layout(name: str) -> Layout:
        return layouts.TRANSPOSED if re.search("fc", name) else layouts.SAME

    names = ["encoder.0.fc.weight", "encoder.12.norm.weight", "head.bias"]
    found = renamed(iter(names), renames, layout)
    assert found == [
        Rule(("encoder.0.fc.weight",), ("first.fc.kernel",), layouts.TRANSPOSED),
        Rule(("encoder.12.norm.weight",), ("blocks.12.norm.kernel",), layouts.SAME),
        Rule(("head.bias",), ("head.bias",), layouts.SAME),
    ]
    assert renamed(["a"], []) == [Rule(("a",), ("a",), layouts.SAME)]


def test_names_in_braces_are_joined_and_names_that_meet_are_split() -> None:
    names, own = ["qkv.weight", "key.weight", "value.weight", "key.bias", "value.bias", "norm"], random(6, 2)
    special = Rule(("norm",), ("a", "b"), layouts.FOLDED_TOKEN)
    found = renamed(names, [("qkv", "{q,k,v}_proj"), ("key|value", "kv")], special=[special])
    assert [(rule.ours, rule.theirs) for rule in found[:3]] == [
        (("qkv.weight",), ("q_proj.weight", "k_proj.weight", "v_proj.weight")),
        (("key.weight", "value.weight"), ("kv.weight",)),
        (("key.bias", "value.bias"), ("kv.bias",)),
    ]
    assert found[3:] == [special]
    torch.testing.assert_close(goes_round(found[0].layout, list(own.chunk(3)))[0], own)
    assert [len(part) for part in goes_round(found[1].layout, [own])] == [3, 3]
    (rule,) = renamed(["qkv.bias"], [("qkv.bias", "{q,v}_bias")], lambda _: layouts.TRANSPOSED)
    assert (rule.theirs, rule.layout) == (("q_bias", "v_bias"), layouts.TRANSPOSED)
