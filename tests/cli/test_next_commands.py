"""What a finished run proposes next can be pasted."""

import shlex
from pathlib import Path

import pytest

from tests.cli.conftest import write_images
from vitral.cli.main import main

LEARNS = ("--from", "vit-mu16", "--image-size", "32", "--recipe", "scratch", "--no-baselines")
SHORT = ("steps=60", "batch_size=16", "workers=0", "optimizer.name=adamw", "optimizer.lr=1e-3")


def trained(*arguments: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the lines that a fine-tuning prints after its scores."""
    assert main(["finetune", *arguments]) == 0
    shown = capsys.readouterr().out.splitlines()
    return shown[shown.index("Next:") :]


@pytest.mark.long
def test_many_images_in_no_class_are_proposed_to_be_learned_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_images(Path("photos"), {"red": 20, "green": 20})
    write_images(Path("others"), {"a": 20, "b": 10})
    short = [part for change in SHORT for part in ("--set", change)]
    for number, path in enumerate(Path("others").rglob("*.jpg")):
        (Path("photos") / f"{number}.jpg").write_bytes(path.read_bytes())
    few = trained("--data", "photos", "--out", "few", *LEARNS, *short, capsys=capsys)
    assert not any("noisy-student" in line for line in few)  # 30 beside 32 labelled ones
    for number in (100, 101, 102):
        (Path("photos") / f"{number}.jpg").write_bytes(Path("others/a/0.jpg").read_bytes())
    proposed = trained("--data", "photos", "--out", "runs/first one", *LEARNS, *short, capsys=capsys)[-1]
    assert proposed.endswith("  # the 33 images in no class teach, too, once they lie in a folder OTHERS")
    words = shlex.split(proposed.replace("OTHERS", "others", 1), comments=True)
    assert words[:2] == ["vitral", "finetune"]
    after = trained(*words[2:], "--out", "second", capsys=capsys)
    assert not any("noisy-student" in line for line in after)
