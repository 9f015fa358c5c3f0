"""How results are shown in a notebook: a small and harmless piece of HTML; and the notebook of the docs, cell by cell."""

import ast
import dataclasses
import json
import pickle
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.conftest import TINY
from vitral.classifier.classifier import Classifier
from vitral.classifier.metadata import Provenance
from vitral.events import ignore
from vitral.explanation.explain import explain
from vitral.images.preprocessing import Preprocessing
from vitral.models.vit import ViT
from vitral.notebook import curve, table
from vitral.studies.finetune import finetune
from vitral.tasks.metrics import evaluate_probabilities
from vitral.tasks.multi_label import MULTI_LABEL

EVIL = "<script>alert(1)</script>\"' onload=x"
NAMES = (EVIL, "שם\u202e של מחלקה", b"x\xe9\x1b[31m".decode("utf-8", "surrogateescape") + "y" * 300)
ALLOWED = {"div", "b", "table", "tbody", "tr", "th", "td", "bdi", "img", "svg", "polyline"}


def classifier() -> Classifier:
    model = ViT(TINY)
    model.init_weights(0)
    torch.nn.init.normal_(model.head.weight, generator=torch.Generator().manual_seed(0))
    scores = {"test/top1": 0.35, "test/top1_low": 0.2, "test/chance": 0.4, "test/ece": 0.1}
    provenance = Provenance(source=EVIL, training={"steps": 1}, scores=scores)
    return Classifier(model, Preprocessing(image_size=(16, 16)), NAMES, provenance=provenance)


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    """One of each, all names hostile."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(3, (40,), generator=generator)
    probabilities = torch.randn(40, 3, generator=generator).softmax(dim=1)
    files = [EVIL] * 40
    image = np.random.default_rng(0).integers(0, 256, (1200, 900, 3), dtype=np.uint8)
    many = torch.nn.functional.one_hot(labels, 3).float()
    return {
        "classifier": classifier(),
        "evaluation": evaluate_probabilities(probabilities, labels, class_names=NAMES, descriptions=files),
        "labels": MULTI_LABEL.score(probabilities, many, class_names=NAMES, describe=str),
        "explanation": explain(classifier(), image),
        "prediction": classifier().predict(image)[0],
        "image": image,  # which a card shows as long as it is there
    }


RESULTS = ("classifier", "evaluation", "labels", "explanation", "prediction")
PICTURED = ("explanation", "prediction")


@pytest.mark.parametrize("name", RESULTS)
def test_nothing_of_the_users_becomes_markup(results: dict[str, Any], name: str) -> None:
    found = results[name]._repr_html_()
    tags: list[str] = []
    attributes: set[str] = set()

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            tags.append(tag)
            attributes.update(key for key, _ in attrs)

    Reader().feed(found)
    assert tags
    assert set(tags) <= ALLOWED
    assert not [key for key in attributes if key.startswith("on")]
    assert len(found.encode()) < (600_000 if name in PICTURED else 6000)  # a broken character would not encode
    assert "\u202e" not in found
    assert re.findall(r'src="([^:]*:[^;]*)', found) == (["data:image/jpeg"] if name in PICTURED else [])


def test_a_prediction_is_a_card_of_its_image_and_its_classes(tmp_path: Path) -> None:
    Image.new("RGB", (40, 30), (200, 30, 40)).save(tmp_path / "photo.png")
    (found,) = classifier().predict(tmp_path / "photo.png", listener=ignore)
    shown = found._repr_html_()
    assert re.findall(r"width: ([\d.]+)%; min", shown) == [f"{100 * share:.1f}" for _, share in found.top]
    assert all(f"{share:.1%}" in text for _, share in found.top for text in (shown, repr(found)))
    assert "<img" in shown
    (tmp_path / "photo.png").unlink()  # what is gone is not shown, and no error in the notebook
    assert "<img" not in found._repr_html_()
    doubtful = dataclasses.replace(found, sure=False, novelty=2.0)
    assert all(
        "not sure" in text and "none of the classes" in text for text in (doubtful._repr_html_(), repr(doubtful))
    )


def test_predictions_keep_no_image_in_memory() -> None:
    images = [np.full((8, 8, 3), index, dtype=np.uint8) for index in range(65)]
    assert {found.pixels for found in classifier().predict(images, listener=ignore)} == {None}
    first, second = classifier().predict(images[:2], listener=ignore)
    assert all("<img" in found._repr_html_() for found in (first, second))
    copied = pickle.loads(pickle.dumps(first))
    assert (copied, copied.pixels) == (first, None)
    del images
    assert "<img" not in second._repr_html_()


def test_a_poor_classifier_says_so() -> None:
    assert "better than guessing" in classifier()._repr_html_()


def test_a_run_shows_its_result_its_curve_and_what_is_wrong(tmp_path: Path) -> None:
    options = ["steps=12", "batch_size=16", "workers=0"]
    result = finetune(
        "digits", source="vit-mu4", out=tmp_path / "run", overrides=options, baselines=False, listener=ignore
    )
    shown = result._repr_html_()
    assert len(shown) < 6000
    assert "<polyline" in shown
    assert "Beware" in shown
    assert "Beware" not in dataclasses.replace(result, diagnosis=())._repr_html_()


def test_curves_leave_out_what_is_not_finite() -> None:
    assert curve([1.0, float("nan"), 3.0], "x").count(",") == 2
    assert curve([1.0], "x") == ""
    assert curve([2.0, 2.0], "x")
    assert curve(list(range(10_000)), "x").count(",") <= 120


def test_rows_without_a_value_are_left_out() -> None:
    assert table("T", [("a", "1"), ("b", "")]).count("<tr>") == 1


def test_the_notebook_of_the_docs_runs_and_shows_its_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = json.loads((Path(__file__).parents[1] / "docs" / "photos.ipynb").read_text(encoding="utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    random = np.random.default_rng(0)
    for place, name in enumerate(("dress", "hat", "shirt")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(12):
            pixels = random.integers(0, 80, (40, 48, 3), dtype=np.uint8)
            pixels[:, :, place] += 120
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{number}.jpg")
    monkeypatch.chdir(tmp_path)
    shown = []
    names: dict[str, Any] = {}
    for cell in cells:
        *statements, last = ast.parse(cell).body
        if not isinstance(last, ast.Expr):
            statements.append(last)
        exec(compile(ast.Module(statements, []), "<cell>", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)
            shown.append(value._repr_html_() if hasattr(value, "_repr_html_") else repr(value))
    assert len(shown) == 6
    assert sum("<img" in html for html in shown) == 2  # the answer's card and the map
    assert (tmp_path / "runs" / "photos" / "classifier" / "classifier.json").is_file()
