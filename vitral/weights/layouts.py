"""Converting one library's tensors to another's: invertible rules, applied when reading and inverted when writing."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

Tensors = list[Tensor]


@dataclass(frozen=True)
class Layout:
    """A change of shape: what makes our tensors from theirs, and the inverse of that."""

    read: Callable[[Tensors], Tensors]
    write: Callable[[Tensors], Tensors]


@dataclass(frozen=True)
class Rule:
    """Which of our tensors are made from which of theirs.

    Attributes:
        ours: names in our model; none for a tensor that no forward pass needs.
        theirs: names in the file.
        layout: how they are converted.
    """

    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    layout: Layout


def _each(read: Callable[[Tensor], Tensor], write: Callable[[Tensor], Tensor]) -> Layout:
    return Layout(lambda tensors: [read(tensor) for tensor in tensors], lambda ours: [write(tensor) for tensor in ours])


SAME = Layout(list, list)
# Flax and TensorFlow store inputs before outputs: a dense kernel is (in, out), a convolution's (height, width, in, out).
TRANSPOSED = _each(lambda kernel: kernel.T.contiguous(), lambda weight: weight.T.contiguous())
CONVOLUTION = _each(
    lambda kernel: kernel.permute(3, 2, 0, 1).contiguous(), lambda weight: weight.permute(2, 3, 1, 0).contiguous()
)
# A dense layer that is stored as a convolution of kernel 1: (1, 1, in, out) in TensorFlow, (out, in, 1, 1) in torch.
DENSE_KERNEL = _each(
    lambda kernel: kernel.flatten(0, 2).T.contiguous(), lambda weight: weight.T.contiguous()[None, None]
)
POINTWISE = _each(lambda kernel: kernel.flatten(1), lambda weight: weight[:, :, None, None])
# The hybrids' published norms are (1, 1, 1, channels).
BROADCAST_NORM = _each(torch.Tensor.flatten, lambda scale: scale[None, None, None])


def _parts(tokens: Tensor, sizes: Sequence[int]) -> Tensors:
    return [part.contiguous() for part in torch.split(tokens, list(sizes), dim=1)]


def regrouped(ours: Sequence[int], theirs: Sequence[int]) -> Layout:
    """Tokens (1, tokens, dim) in groups of these sizes that theirs are grouped otherwise: a class token among registers."""
    return Layout(
        lambda tokens: _parts(torch.cat(tokens, dim=1), ours), lambda tokens: _parts(torch.cat(tokens, dim=1), theirs)
    )


def folded(ours: Sequence[int], theirs: Sequence[int]) -> Layout:
    """Such tokens and a table of positions, whose rows for them, where theirs has some, are added to our tokens."""
    groups, count = regrouped(ours, theirs), sum(ours)

    def read(tensors: Tensors) -> Tensors:
        *tokens, positions = tensors
        rows = _parts(positions[:, :count], theirs)
        added = [token + row for token, row in zip(tokens, rows, strict=True)]
        return [*groups.read(added), positions[:, count:].contiguous()]

    def write(tensors: Tensors) -> Tensors:
        *tokens, positions = tensors
        return [*groups.write(tokens), functional.pad(positions, (0, 0, count, 0))]

    return Layout(read, write)


# Where our class token has no position and theirs has one.
FOLDED_TOKEN = folded([1], [1])
# The reverse: theirs has no position, as in big_vision. Our row is zero when read, and added to the token when written.
CLASS_ROW = Layout(FOLDED_TOKEN.write, FOLDED_TOKEN.read)


def has_values(tensor: Tensor) -> bool:
    """Tell whether a tensor holds anything but zeros; one on the meta device holds no values."""
    return not tensor.is_meta and bool(tensor.any())


def zeros(*shape: int) -> Layout:
    """A tensor that no forward pass needs: read as nothing, written as zeros."""
    return Layout(lambda _: [], lambda _: [torch.zeros(shape)])


def attention_kernels(heads: int) -> Layout:
    """Query, key, value kernels (dim, heads, head_dim), one or several, as one weight (parts * dim, dim)."""

    def write(ours: Tensors) -> Tensors:
        (weight,) = ours
        dim = weight.shape[1]
        return [part.T.reshape(dim, heads, -1).contiguous() for part in weight.chunk(weight.shape[0] // dim)]

    return Layout(lambda kernels: [torch.cat([kernel.flatten(1).T for kernel in kernels])], write)


def attention_biases(heads: int, parts: int) -> Layout:
    """Query, key, value biases (heads, head_dim), one or several, as one (parts * dim)."""
    return Layout(
        lambda biases: [torch.cat([bias.flatten() for bias in biases])],
        lambda ours: [bias.reshape(heads, -1).contiguous() for bias in ours[0].chunk(parts)],
    )


def attention_output(heads: int) -> Layout:
    """The output kernel (heads, head_dim, dim) as a weight (dim, dim)."""
    return _each(
        lambda kernel: kernel.flatten(0, 1).T.contiguous(),
        lambda weight: weight.T.reshape(heads, -1, weight.shape[0]).contiguous(),
    )


def head_major(heads: int) -> Layout:
    """Query, key and value of one head after the other, of which ours are the queries of all heads, then keys, then values."""

    def sorted_anew(tensor: Tensor, outer: int, inner: int) -> Tensor:
        return tensor.reshape(outer, inner, -1, *tensor.shape[1:]).transpose(0, 1).reshape(tensor.shape)

    return _each(lambda theirs: sorted_anew(theirs, heads, 3), lambda ours: sorted_anew(ours, 3, heads))


def joined(parts: int) -> Layout:
    """Several of their tensors, such as query, key and value, joined to one of ours along the outputs."""
    return Layout(lambda theirs: [torch.cat(theirs)], lambda ours: [part.contiguous() for part in ours[0].chunk(parts)])


def split(parts: int) -> Layout:
    """One of their tensors, such as key and value, split into several of ours along the outputs."""
    joint = joined(parts)
    return Layout(joint.write, joint.read)


def rule(ours: str, theirs: str, layout: Layout = SAME) -> Rule:
    """Return the rule from one tensor to one."""
    return Rule((ours,), (theirs,), layout)


def written(rules: Iterable[Rule], ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return their tensors, by name, that are made from ours."""
    made = ((rule.theirs, rule.layout.write([ours[name] for name in rule.ours])) for rule in rules)
    return {name: tensor for names, tensors in made for name, tensor in zip(names, tensors, strict=True)}


Renames = Sequence[tuple[str, str | Callable[[re.Match[str]], str]]]


def from_one(form: str) -> Callable[[re.Match[str]], str]:
    """Return the replacement by a form such as "block{}." with a pattern's numbers, which theirs counts from 1."""
    return lambda match: form.format(*(int(number) + 1 for number in match.groups()))


def renamed(
    names: Iterable[str],
    renames: Renames,
    layouts: Callable[[str], Layout] = lambda _: SAME,
    special: Sequence[Rule] = (),
) -> list[Rule]:
    """Return a rule for each of our names; theirs follow from regular expressions, applied in order.

    A name of theirs with braces, "{q,k,v}_proj.weight", stands for several, of which ours is joined; and several of ours
    that come to the same name are what it is split into.

    Args:
        names: ours.
        renames: pattern, and replacement as of `re.sub`.
        layouts: the layout of each of ours, where that is another one.
        special: rules of their own, in place of those for the names of ours in them.
    """
    apart = {ours for rule in special for ours in rule.ours}
    grouped: dict[str, list[str]] = {}
    for ours in names:
        theirs = ours
        for pattern, replacement in renames:
            theirs = re.sub(pattern, replacement, theirs)
        if ours not in apart:
            grouped.setdefault(theirs, []).append(ours)
    table = [_rule(tuple(ours), _spelt_out(theirs), layouts(ours[0])) for theirs, ours in grouped.items()]
    return [*table, *special]


def _spelt_out(name: str) -> tuple[str, ...]:
    before, brace, rest = name.partition("{")
    parts, _, after = rest.partition("}")
    return tuple(f"{before}{part}{after}" for part in parts.split(",")) if brace else (name,)


def _rule(ours: tuple[str, ...], theirs: tuple[str, ...], layout: Layout) -> Rule:
    if layout is SAME and len(theirs) > 1:
        layout = joined(len(theirs))
    elif layout is SAME and len(ours) > 1:
        layout = split(len(ours))
    return Rule(ours, theirs, layout)
