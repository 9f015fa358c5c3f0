"""What a command does not need is not imported for it: each of these libraries takes up to a second of its start."""

import subprocess
import sys

import pytest

NEEDLESS = {
    "predict": {"torch", "fsspec", "matplotlib", "jinja2"},
    "plan": {"matplotlib", "jinja2", "imagehash"},
    "starts": {"matplotlib", "jinja2", "imagehash"},
    "explain": {"imagehash"},
}


@pytest.mark.parametrize("command", NEEDLESS)
def test_a_command_imports_no_library_that_it_does_without(command: str) -> None:
    program = f"import sys, vitral.cli.{command}; print(*({{*sys.modules}} & set(sys.argv[1:])))"
    ran = subprocess.run(
        [sys.executable, "-c", program, *NEEDLESS[command]], capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == []
