"""The page on the mutation run: a table of the modules, and every survivor with its answer."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Mutant = dict[str, str]  # "function", the lines "before" and "after", and "since", the test that was written for it
Results = Mapping[str, Mapping[str, Mapping[str, Any]]]  # by room and module

ENOUGH = 0.85
HEAD = """# Do the tests bite?

`make mutants` lets [mutmut](https://mutmut.readthedocs.io) change one expression at a time in the code whose faults make no
noise, and runs the room's tests on each change. A mutant is *killed* when a test fails. Of a module with many mutants a
sample is run, drawn by a fixed seed. This page is written by that run; at least 85 % must be killed, each survivor answered.

mutmut changes the bodies of functions that have no decorator, in the process that has imported the module already; tables and
constants of a module, what makes them, and functions under `@torch.no_grad()` it leaves alone. Those are held to their
sources by tests that write the source's figures out anew.

## Planted by hand

| fault | what fails |
|---|---|
| sigmoid loss averaged over the classes | `objectives/test_classification.py`: summed over classes |
| its label smoothing without the part that is spread | `objectives/test_classification.py`: spread over all |
| ShearX twice as strong | `images/test_operations.py`: values at timm's strengths, and at big_vision's |
| stochastic depth that does not scale up what stays | `models/test_stochastic_depth_formula.py` |
| a position table of ten times its deviation | `models/test_initialization.py` |

## Mutants
"""


def document(results: Results, answers: Sequence[Mapping[str, str]]) -> tuple[str, int]:
    """Return the page, and how many survivors have no answer.

    Args:
        results: what became of the mutants.
        answers: each a regular expression for `before => after`, the module that it is about unless it is about all, and why.
    """
    survivors = [
        (module, mutant, _answer(module, mutant, answers))
        for modules in results.values()
        for module, counts in modules.items()
        for mutant in counts["survived"]
    ]
    text = "\n".join([HEAD, *_table(results), "", "## Survivors", "", *_listed(survivors), ""])
    return text, sum(not why for *_, why in survivors)


def share_killed(results: Results) -> float:
    """Return the share of all mutants that were run."""
    counts = [counts for modules in results.values() for counts in modules.values()]
    return sum(count["killed"] for count in counts) / sum(count["run"] for count in counts)


def _answer(module: str, mutant: Mutant, answers: Sequence[Mapping[str, str]]) -> str:
    if "since" in mutant:
        return f"Killed since, by a test written for it: `{mutant['since']}`."
    change = f"{mutant['before']} => {mutant['after']}"
    fitting = (answer for answer in answers if answer.get("module", module) == module)
    return next((answer["why"] for answer in fitting if re.search(answer["change"], change)), "")


def _table(results: Results) -> Iterator[str]:
    yield "| module | mutants | run | killed | survived | killed |"
    yield "|---|---|---|---|---|---|"
    for modules in results.values():
        for module, counts in modules.items():
            if not counts["run"]:
                continue
            share = counts["killed"] / counts["run"]
            yield (
                f"| {module} | {counts['mutants']} | {counts['run']} | {counts['killed']} | {len(counts['survived'])} "
                f"| {share:.0%} |"
            )
    every = [counts for modules in results.values() for counts in modules.values()]
    totals = [sum(counts[key] for counts in every) for key in ("mutants", "run", "killed")]
    survived = sum(len(counts["survived"]) for counts in every)
    yield f"| all | {totals[0]} | {totals[1]} | {totals[2]} | {survived} | {share_killed(results):.1%} |"


def _listed(survivors: Sequence[tuple[str, Mutant, str]]) -> Iterator[str]:
    place = None
    for module, mutant, why in survivors:
        if place != (module, mutant["function"]):
            place = (module, mutant["function"])
            yield f"### {module}: `{mutant['function']}`\n"
        yield f"    - {mutant['before']}\n    + {mutant['after']}\n\n{why or '**No answer yet.**'}\n"
