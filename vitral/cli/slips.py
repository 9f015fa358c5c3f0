"""What to type for an option that other programs have: their flags for the settings of a training are keys of a recipe here."""

import re
import shlex
from collections.abc import Collection, Sequence

from vitral.training.settings.headers import set_keys

SETTINGS = "--set"
OTHER_WORDS = {"learning_rate": "lr", "lr0": "lr", "wd": "weight_decay", "opt": "optimizer", "batch": "batch_size"}
# Words around that of a setting that say nothing else: --num-train-epochs, --per-device-train-batch-size.
FILLING = {"num", "n", "nb", "number", "of", "max", "total", "train", "training", "per", "device", "base", "initial"}
CLASSIFIERS = {"model", "weights", "checkpoint", "ckpt", "pretrained"}  # here by the first of these flags that there is
NAMES_CLASSIFIER = ("--from", "--classifier")
DEVICES = {"device", "devices", "gpu", "gpus", "cuda", "accelerator"}
SAYS_DEVICE = "training takes the GPU that torch finds, and CUDA_VISIBLE_DEVICES in the environment says which"


def instead_of(option: str, tokens: Sequence[str], known: Collection[str]) -> str:
    """Return what to type instead of an option that a command does not have; empty where that is not known.

    Args:
        option: The option, such as "--lr".
        tokens: The command line, of which the option's value is repeated.
        known: The command's own options.
    """
    name = option.lstrip("-").replace("-", "_").lower()
    flag = next((flag for flag in NAMES_CLASSIFIER if flag in known), "")
    if name in CLASSIFIERS and flag:
        return f"here it is {flag} {_value(option, tokens)}"
    if SETTINGS not in known:
        return ""
    if name in DEVICES:
        return SAYS_DEVICE
    value = _value(option, tokens)
    keys = [shlex.join([SETTINGS, f"{key}={value}"]) for key in keys_meant(name)]
    return f"a recipe's setting is given by {' or '.join(keys)}" if keys else ""


def keys_meant(name: str) -> list[str]:
    """Return the keys of recipes that end in a name such as "batch_size", but for words that fill it; a section is its name."""
    words = [word for word in name.split("_") if word not in FILLING]
    plain = "_".join(words) or name
    plain = _letters(OTHER_WORDS.get(name, OTHER_WORDS.get(plain, plain)))
    found = [key for key in set_keys() if _letters(key.rpartition(".")[2]) == plain and plain != "name"]
    return found or [key for key in set_keys() if _letters(key) == f"{plain}name"]


def _letters(key: str) -> str:
    return re.sub(r"[._]", "", key)


def _value(option: str, tokens: Sequence[str]) -> str:
    """Return the value of an option on a command line, or what stands for one."""
    for token, following in zip(tokens, [*tokens[1:], ""], strict=True):
        flag, sign, value = token.partition("=")
        if flag == option:
            return value if sign else following if following and not following.startswith("-") else "VALUE"
    return "VALUE"
