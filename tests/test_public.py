"""What `import vitral` gives."""

import importlib
import pkgutil
from pathlib import Path
from types import ModuleType

import pytest
from PIL import Image

import vitral
from tests.cases import every_case
from vitral.classifier.folder import save
from vitral.data.open import open_data
from vitral.images.preprocessing import PHOTOS


@every_case("name", vitral.__all__)
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


def test_what_takes_a_classifier_takes_its_name_too(tmp_path: Path) -> None:
    digits = open_data("digits")
    network = vitral.create_model("vit-mu4", num_classes=10)
    folder = save(
        vitral.Classifier(network, PHOTOS.with_size(network.image_size), digits.class_names), tmp_path / "mine"
    )
    assert vitral.evaluate(folder, digits).num_examples == len(digits.splits["test"])
    image = digits.splits["test"].image(0)
    assert vitral.explain(str(folder), image).label == vitral.load(folder).predict(image)[0].label


def test_data_are_checked_in_python(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        Image.new("RGB", (40, 40), "red").save(tmp_path / "photos" / name / "same.png")
    found = vitral.check(tmp_path / "photos")
    assert any("different classes" in problem for problem in found.problems())


def test_what_python_gives_is_shown_in_a_few_lines_without_its_numbers(tmp_path: Path) -> None:
    settings = ["steps=4", "batch_size=8", "workers=0"]
    result = vitral.finetune("digits", source="vit-mu4", recipe="scratch", out=tmp_path / "run", overrides=settings)
    classifier = result.classifier
    found = vitral.check("digits")
    shown = {
        "Classifier: vit-mu4": classifier,
        "Evaluation: ": result.evaluation,
        "RunResult: fine-tune on digits, 4 steps": result,
        "Explanation: ": vitral.explain(classifier, found.sheet),
        "DataCheck: digits, 1,797 images, 10 classes": found,
    }
    for beginning, value in shown.items():
        lines = repr(value).splitlines()
        assert lines[0].startswith(beginning)
        assert len(lines) <= 3
        assert max(map(len, lines)) < 250
        assert not any(word in repr(value) for word in ("tensor(", "array(", "Parameter", "Linear(", "\\x"))
    assert "(0, 1, 2, 3, …)" in repr(classifier)
    assert "on its test photos" in repr(classifier)
