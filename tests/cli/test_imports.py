"""What a command does not need is not imported for it: each of these libraries takes up to some seconds of its start."""

import os
import subprocess
import sys

import pytest

from vitral.cli.commands import COMMANDS

LISTS = (["models"], ["models", "--weights"], ["models", "deit"], ["recipes"], ["recipes", "cifar"])
SLIPS: tuple[list[str], ...] = (
    ["fintune"],
    ["finetune", "--tiem", "3m"],
    ["finetune", "--lr", "0.1"],
    ["evaluate", "a", "b", "c"],
    ["models", "deit-b61"],
    ["predict"],
    [],
)
# In one process, one after the other: none of them imports what a later one does without.
NEEDLESS = {
    "vitral.classifier.without_torch": {"torch", "fsspec", "matplotlib", "jinja2"},
    "vitral.studies.finetune": {"matplotlib", "jinja2", "torchvision", "torch._dynamo", "scipy"},
    "vitral.training.preview": {"matplotlib", "jinja2", "imagehash"},
    "vitral.studies.compare_starts": {"matplotlib", "jinja2", "imagehash"},
    "vitral.explanation.explain": {"imagehash"},
}
TYPED = """
import ast, sys
from vitral.cli.main import main
for arguments in ast.literal_eval(sys.argv[1]):
    main(arguments)
    assert "torch" not in sys.modules, arguments
assert not {"torchvision", "sklearn", "matplotlib", "cv2", "jinja2"} & {*sys.modules}
"""
IMPORTED = """
import ast, importlib, sys
for module, needless in ast.literal_eval(sys.argv[1]).items():
    importlib.import_module(module)
    assert not needless & {*sys.modules}, (module, needless & {*sys.modules})
"""


def test_help_lists_and_slips_import_no_torch() -> None:
    typed = [*([name, "--help"] for name in COMMANDS), *LISTS, *SLIPS]
    ran = subprocess.run([sys.executable, "-c", TYPED, repr(typed)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_command_imports_no_library_that_it_does_without() -> None:
    ran = subprocess.run([sys.executable, "-c", IMPORTED, repr(NEEDLESS)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="torch's threads wait otherwise there")
@pytest.mark.parametrize(("given", "found"), [({}, "10000"), ({"GOMP_SPINCOUNT": "7"}, "7")])
def test_threads_that_wait_leave_their_core_unless_the_environment_says_otherwise(
    given: dict[str, str], found: str
) -> None:
    bare = {name: value for name, value in os.environ.items() if name != "GOMP_SPINCOUNT"}
    program = "import sys, os, vitral; assert 'torch' not in sys.modules; print(os.environ['GOMP_SPINCOUNT'])"
    ran = subprocess.run([sys.executable, "-c", program], env=bare | given, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == found
