"""A classifier whose images have several labels: trained, scored, saved, reported, used again."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import vitral
from vitral.classifier.load import load
from vitral.cli.main import main
from vitral.errors import DataError, TrainingError
from vitral.evaluation.evaluate import evaluate
from vitral.events import ignore
from vitral.tasks.multi_label import MULTI_LABEL, MultiLabelEvaluation
from vitral.tasks.single_label import SINGLE_LABEL

COLOURS = {"red": 0, "green": 1, "blue": 2}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    lines = ["image,labels,split"]
    for number in range(160):
        chosen = [name for name in COLOURS if rng.random() < 0.5]
        pixels = np.zeros((16, 16, 3), dtype=np.uint8)
        for name in chosen:
            pixels[..., COLOURS[name]] = rng.integers(120, 256)
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
        split = "train" if number < 100 else "val" if number < 120 else "test"
        lines.append(f"{number}.png,{'|'.join(chosen)},{split}")
    (tmp_path / "colours.csv").write_text("\n".join(lines))
    return tmp_path / "colours.csv"


def test_several_labels_from_table_to_report(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    arguments = ["finetune", "--data", str(table), "--from", "vit-mu4", "--image-size", "16", "--out", str(run)]
    assert main([*arguments, "--set", "steps=150", "--set", "batch_size=25", "--set", "optimizer.lr=0.003"]) == 0
    assert "Mean average precision" in capsys.readouterr().out
    classifier = load(run)
    assert classifier.multi_label
    scores = evaluate(classifier, table)
    assert isinstance(scores, MultiLabelEvaluation)
    assert scores.num_examples == 40
    assert scores.mean_average_precision > 0.9
    assert classifier.provenance.scores["test/map"] == pytest.approx(scores.mean_average_precision)
    probabilities = classifier.probabilities(torch.zeros(1, 3, 16, 16))
    assert float(probabilities.sum()) != pytest.approx(1.0, abs=1e-3)
    assert main(["evaluate", "--data", str(table), "--classifier", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["num_examples"] == 40
    assert main(["evaluate", "--data", str(table), "--classifier", str(run), "--report", str(tmp_path / "r.html")]) == 0
    assert "Average precision" in (tmp_path / "r.html").read_text()
    with pytest.raises(DataError, match="are not those of"):
        evaluate(classifier, "digits")


def test_what_stops_after_a_first_classifier_is_refused_by_the_plan_too(table: Path) -> None:
    for call in (vitral.plan, vitral.finetune):
        with pytest.raises(TrainingError, match="has none"):
            call(table, source="vit-mu16", quick=True, listener=ignore)


def test_scores_by_hand() -> None:
    probabilities = torch.tensor([[0.9, 0.2], [0.6, 0.7], [0.1, 0.8]])
    labels = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    scores = MULTI_LABEL.score(probabilities, labels, class_names=["a", "b"], describe=str)
    assert scores.average_precision == (1.0, 1.0)
    assert scores.exact_match == pytest.approx(2 / 3)
    assert scores.f1_micro == pytest.approx(2 * 3 / (2 * 3 + 1))
    none = MULTI_LABEL.score(probabilities, labels * torch.tensor([1.0, 0.0]), class_names=["a", "b"], describe=str)
    assert none.average_precision == (1.0, None)
    assert MultiLabelEvaluation.from_json(json.loads(json.dumps(none.to_json()))) == none


def test_right_answers() -> None:
    logits = torch.tensor([[2.0, 1.0, -1.0], [-1.0, -2.0, -3.0], [-1.0, 1.0, -3.0], [0.0, 3.0, 1.0]])
    assert SINGLE_LABEL.right(logits, torch.tensor([0, 1, 1, 2])).tolist() == [True, False, True, False]
    several = torch.tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, 1.0]])
    assert MULTI_LABEL.right(logits, several).tolist() == [True, True, False, False]
    mixed = torch.tensor([[0.4, 0.6, 0.0], [0.7, 0.3, 0.0], [0.0, 1.0, 0.0], [0.0, 0.8, 0.2]])
    assert SINGLE_LABEL.right(logits, mixed).tolist() == [False, True, True, True]
