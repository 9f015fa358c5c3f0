"""What `import vitral` gives."""

import importlib
import pkgutil
from types import ModuleType

import pytest

import vitral


@pytest.mark.parametrize("name", vitral.__all__)
def test_public_names_are_what_they_say_whatever_was_imported(name: str) -> None:
    for module in pkgutil.walk_packages(vitral.__path__, "vitral."):
        importlib.import_module(module.name)
    found = getattr(vitral, name)
    assert callable(found)
    assert not isinstance(found, ModuleType)
    assert found.__doc__


def test_only_public_names_are_visible() -> None:
    assert sorted([*vitral.__all__, "__version__"]) == dir(vitral)


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'finetun'"):
        vitral.finetun  # noqa: B018
