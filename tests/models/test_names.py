"""The names of tensors: classifier folders, checkpoints and weights that are there already are read by them."""

import json

from tests.cases import every_case
from tests.models.write_names import CASES, NAMES, tensor_names

EARLIER: dict[str, list[str]] = json.loads(NAMES.read_text())


@every_case("name", CASES)
def test_tensors_have_the_names_that_earlier_files_have(name: str) -> None:
    assert tensor_names(CASES[name]) == EARLIER[name]
