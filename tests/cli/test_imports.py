"""What a command does not need is not imported for it: each of these libraries takes up to some seconds of its start."""

import subprocess
import sys

import pytest

from tests.cases import every_case
from vitral.cli.commands import COMMANDS

LISTS = (["models"], ["models", "--weights"], ["models", "deit"], ["recipes"], ["recipes", "cifar"])
SLIPS: tuple[list[str], ...] = (
    ["fintune"],
    ["finetune", "--tiem", "3m"],
    ["evaluate", "a", "b", "c"],
    ["models", "deit-b61"],
    ["predict"],
    [],
)
NEEDLESS = {
    "vitral.classifier.without_torch": {"torch", "fsspec", "matplotlib", "jinja2"},
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


@every_case("typed", [[[name, "--help"] for name in COMMANDS], LISTS, SLIPS])
def test_help_lists_and_slips_import_no_torch(typed: list[list[str]]) -> None:
    ran = subprocess.run([sys.executable, "-c", TYPED, repr(typed)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("module", NEEDLESS)
def test_a_command_imports_no_library_that_it_does_without(module: str) -> None:
    program = f"import sys, {module}; print(*({{*sys.modules}} & set(sys.argv[1:])))"
    ran = subprocess.run([sys.executable, "-c", program, *NEEDLESS[module]], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []
