"""What becomes of a file's head where it has one output, or stands beside the network."""

import dataclasses
import re
from collections.abc import Mapping

import torch

from vitral.errors import WeightsError
from vitral.models.model import HEADS
from vitral.tasks.single_label import SINGLE_LABEL
from vitral.weights.containers import Shape, some
from vitral.weights.dialect import NO_HEAD, UNTRAINED, Reading, meta_state
from vitral.weights.layouts import SAME, Layout, Rule, Tensors, zeros

BESIDE = "beside:"  # before the names of tensors beside the network, which may be those of others within it
# In what people call a last layer; a number alone is its place in an nn.Sequential.
NAMES = re.compile(r"head|fc|clas|cls|lin|logit|out|pred|final|last|^(?:\w+\.)?\d+\.weight$")
OTHERS = re.compile(r"proj|aux|dist|decod|embed")  # in what they call another
RELEASED = (1000, 11221, 11821, 21841, 21843)  # the classes of heads that come with pretrained weights
OF_ONE = (
    "It has one output, whose sigmoid is taken for the probability of the second of two classes; if it learned to give a "
    "number, its answers mean nothing."
)
TAKEN = "Its head is {}, beside the network{}; the names do not tell whether anything stands between."
LEFT = "Left out, since it is no part of the network that is known here: {}; {}"
ANSWERS = "what answers is the network's own head, of {:,} classes."


def with_head_beside(content: Reading, shapes: Mapping[str, Shape], beside: Mapping[str, Shape]) -> Reading:
    """Return a file's content with the head that stands beside its network, or with a note that names what is left out.

    A single linear layer is taken where it fits the features of the network, or the outputs of its own head. Rules name the
    tensors beside it after `BESIDE`.

    Raises:
        WeightsError: two heads fit, and nothing tells which is meant.
    """
    if not beside:
        return content
    own = [rule for rule in content.rules if "".join(rule.ours[:1]).startswith(HEADS)]
    width, classes = meta_state(content.config)["head.weight"].shape[1], content.config.num_classes
    linear = [name for name in _linear(beside) if beside[name][1] in ({width, classes} if own else {width})]
    if len(linear) > 1 or (linear and own and classes not in RELEASED and beside[linear[0]][1] == width):
        both = [*(name for rule in own for name in rule.theirs if len(shapes[name]) > 1), *linear]
        raise WeightsError(
            f"several heads fit the network: {' and '.join(both)}; keep the one that is meant alone in the file"
        )
    alone = linear and {linear[0], _bias(linear[0])} >= beside.keys()
    if not alone or "distillation_head.weight" in meta_state(content.config) or (own and width == classes):
        return _left_out(content, beside)
    return _taken(content, linear[0], own, beside)


def _linear(beside: Mapping[str, Shape]) -> list[str]:
    """Return the weights of the linear layers that are heads by their names."""
    return [
        name
        for name, shape in beside.items()
        if len(shape) == 2
        and name.endswith("weight")
        and NAMES.search(name.lower())
        and not OTHERS.search(name.lower())
    ]


def _bias(weight: str) -> str:
    return f"{weight.removesuffix('weight')}bias"


def _left_out(content: Reading, beside: Mapping[str, Shape]) -> Reading:
    answers = UNTRAINED if content.absent else ANSWERS.format(content.config.num_classes)
    notes = tuple(note for note in content.notes if note != NO_HEAD)
    return dataclasses.replace(content, notes=(*notes, LEFT.format(some(beside), answers)))


def _taken(content: Reading, weight: str, own: list[Rule], beside: Mapping[str, Shape]) -> Reading:
    """Return the content with a linear layer as its head: in place of its own, or after it, which makes one layer of both."""
    classes, width = beside[weight]
    names = tuple(f"{BESIDE}{name}" for name in beside)
    inner = tuple(name for rule in own for name in rule.theirs)
    rules = [rule for rule in content.rules if rule not in own]
    absent = tuple(name for name in ("head.bias",) if len(names) == 1)
    after = bool(own) and width == content.config.num_classes
    if after:
        rules.append(Rule(("head.weight", "head.bias"), (*inner, *names), _one_layer(own)))
        absent = ()
    else:
        rules += [Rule((), (name,), zeros()) for name in inner]
        rules += [Rule((f"head.{name.rpartition('.')[2]}",), (name,), SAME) for name in names]
    said = (
        f", after its own of {width:,} outputs"
        if after
        else f" in place of its own of {content.config.num_classes:,} classes"
        if own
        else ""
    )
    return dataclasses.replace(
        content,
        config=dataclasses.replace(content.config, num_classes=classes),
        rules=rules,
        absent=absent,
        notes=(*(note for note in content.notes if note != NO_HEAD), TAKEN.format(some(beside), said)),
    )


def _one_layer(own: list[Rule]) -> Layout:
    """Return the layout of two linear layers, one after the other, as one."""

    def read(theirs: Tensors) -> Tensors:
        parts, made = list(theirs), dict[str, torch.Tensor]()
        for rule in own:
            taken = [parts.pop(0) for _ in rule.theirs]
            made |= dict(zip(rule.ours, rule.layout.read(taken), strict=True))
        weight, *bias = parts
        return [weight @ made["head.weight"], sum(bias, weight @ made["head.bias"])]

    return Layout(read, list)


def of_two_classes(content: Reading) -> Reading:
    """Return a network of one output as one of two classes with the same answers: minus and plus half its logit.

    The softmax of the two is the sigmoid of the one. Networks of another task, and those without a head, stay as they are.
    """
    if content.config.num_classes != 1 or content.task is not SINGLE_LABEL or "head.weight" in content.absent:
        return content
    names = content.class_names
    return dataclasses.replace(
        content,
        config=dataclasses.replace(content.config, num_classes=2),
        rules=[_halved(rule) if "".join(rule.ours[:1]).startswith(HEADS) else rule for rule in content.rules],
        class_names=(f"not {names[0]}", names[0]) if names and len(names) == 1 else names,
        notes=(*content.notes, OF_ONE),
    )


def _halved(rule: Rule) -> Rule:
    """Return a head's rule with its one row as two, of which the difference is that row."""
    return dataclasses.replace(
        rule, layout=Layout(lambda theirs: [torch.cat([-row / 2, row / 2]) for row in rule.layout.read(theirs)], list)
    )
