"""A task from one file takes part in everything: trained, validated, scored, saved, loaded, used, reported."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.forks import Fork, script, type_command

TASK = Path(__file__).parent.parent.parent / "docs" / "plugins" / "task.py"
GRADES = ("dark", "dim", "grey", "light", "white")
WHOLE = f"""
import json, torch, vitral
from vitral.cli.main import main
from vitral.cli.training import write_run_report
from vitral.data.open import open_data
from vitral.tasks.registry import task_named
vitral.load_plugin({str(TASK)!r})
result = vitral.finetune("grades.csv", source="vit-mu4", out="run", image_size=16, listener=lambda event: None, overrides=[
    "task=ordinal", "steps=120", "batch_size=20", "optimizer.lr=0.003", "augmentation.crop=none", "workers=0",
    "evaluation.every_steps=40"])
page = write_run_report(result, listener=lambda event: None)
classifier = vitral.load("run")
scores = vitral.evaluate(classifier, "grades.csv", listener=lambda event: None)
predicted = classifier.predict("199.png", listener=lambda event: None)[0]
explained = vitral.explain(classifier, "199.png")
images = torch.stack([classifier.preprocessing(open_data("grades.csv").splits["test"].image(index)) for index in range(4)])
assert main(["--plugin", {str(TASK)!r}, "evaluate", "--data", "grades.csv", "--classifier", "run", "--report", "r.html"]) == 0
print(json.dumps({{
    "task": classifier.task.name,
    "logits": classifier(images).shape[1],
    "sums": classifier.probabilities(images).sum(dim=1).tolist(),
    "run": result.evaluation.to_json(),
    "scores": scores.to_json(),
    "read": task_named("ordinal").read(json.loads(json.dumps(scores.to_json()))) == scores,
    "kept": dict(classifier.provenance.scores),
    "label": predicted.label,
    "explained": [explained.label, explained.probability - predicted.probability],
    "validated": [row["validation/mae"] for row in result.training.history if "validation/mae" in row],
    "best": result.training.best_step,
    "shown": repr(classifier),
}}))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images of which the label says how bright they are."""
    folder = tmp_path_factory.mktemp("grades")
    rng = np.random.default_rng(0)
    lines = ["image,label,split"]
    for number in range(200):
        grade = number % 5
        pixels = np.clip(rng.normal(25 + 50 * grade, 12, (16, 16, 3)), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
        split = "train" if number < 120 else "val" if number < 150 else "test"
        lines.append(f"{number}.png,{GRADES[grade]},{split}")
    (folder / "grades.csv").write_text("\n".join(lines))
    return folder


@pytest.fixture(scope="module")
def said(folder: Path) -> dict[str, Any]:
    """What a process of its own says of the whole way, since what a plugin registers stays for as long as it lives."""
    done = Fork(script, WHOLE, folder=folder).ended()
    assert done.returncode == 0, done.stderr
    assert "classes in the mean" in done.stdout
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_an_ordinal_task_of_one_file_goes_the_whole_way(folder: Path, said: dict[str, Any]) -> None:
    assert said["task"] == "ordinal"
    assert said["logits"] == 4
    assert said["sums"] == pytest.approx([1.0] * 4, abs=1e-5)
    assert said["scores"] == said["run"]
    assert said["read"]
    assert said["scores"]["mae"] < 0.3  # guessing the middle is 1.2 off
    assert said["kept"] == {"test/mae": said["scores"]["mae"]}
    assert said["label"] == "white"
    assert said["explained"][0] == "white"
    assert abs(said["explained"][1]) < 1e-4
    assert "mean absolute error" in said["shown"]
    description = json.loads((folder / "run" / "classifier" / "classifier.json").read_text())
    assert (description["task"], description["version"]) == ("ordinal", 2)
    for page in (folder / "run" / "report.html", folder / "r.html"):
        assert "Every class" in page.read_text()


def test_the_best_validation_is_the_lowest_error(said: dict[str, Any]) -> None:
    figures = said["validated"]
    assert len(figures) == 3
    assert said["best"] == 40 * (1 + figures.index(min(figures)))


def test_a_task_that_is_not_registered_is_refused_in_one_line(folder: Path, said: dict[str, Any]) -> None:
    for arguments, expected in (
        (["finetune", "--data", "grades.csv", "--set", "task=ordinal", "--from", "vit-mu4"], "no task 'ordinal'"),
        (["predict", "199.png", "--classifier", "run"], "needs the plugin 'task.py'"),
    ):
        done = type_command(folder, *arguments)
        assert done.returncode == 1
        assert expected in done.stderr
        assert "Traceback" not in done.stderr
