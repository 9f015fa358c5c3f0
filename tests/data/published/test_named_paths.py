"""A path in a name of data is a path like any other: seen from elsewhere, and never written to."""

from pathlib import Path

import pytest

import vitral
from tests.data.published.written import cifar10_files, write
from vitral.cli.main import main
from vitral.data.open import open_data, parts_of_name, path_in, seen_from_here
from vitral.errors import DataError, StorageError
from vitral.events import ignore


def test_the_parts_of_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert parts_of_name("cifar10:c/i") == ("cifar10:", "c/i", "")
    assert parts_of_name("vtab:data:pets:train800val200") == ("vtab:", "data", ":pets:train800val200")
    assert parts_of_name("vtab:data:pets") == ("vtab:", "data", ":pets")
    for whole in ("photos/", "hf:owner/name", "digits", "s3://bucket/x.parquet"):
        assert path_in(whole) == whole
    (tmp_path / "there" / "c").mkdir(parents=True)
    assert seen_from_here("cifar10:c", f"{tmp_path}/there") == f"cifar10:{tmp_path}/there/c"
    assert seen_from_here("vtab:c:pets", f"{tmp_path}/there") == f"vtab:{tmp_path}/there/c:pets"
    assert seen_from_here("c", f"{tmp_path}/there") == f"{tmp_path}/there/c"
    assert seen_from_here("cifar10:gone", f"{tmp_path}/there") == "cifar10:gone"
    Path("pets:x").mkdir()  # a folder that is called so
    assert path_in("pets:x") == "pets:x"


def test_the_home_folder_is_known_after_a_prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    write(tmp_path / "home" / "cifar", cifar10_files())
    assert len(open_data("cifar10:~/cifar").splits["test"]) == 20
    assert parts_of_name("cifar10:~/cifar") == ("cifar10:", f"{tmp_path}/home/cifar", "")
    assert parts_of_name("vtab:~/data:pets") == ("vtab:", f"{tmp_path}/home/data", ":pets")
    assert seen_from_here("pets:~/cifar", "/elsewhere") == f"pets:{tmp_path}/home/cifar"
    with pytest.raises(DataError, match="There is no folder or archive '~nobody-of-that-name/x'"):
        open_data("pets:~nobody-of-that-name/x")


def test_a_run_goes_on_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    write(home / "cifar", cifar10_files())
    monkeypatch.chdir(home)
    settings = ["steps=2", "batch_size=8", "workers=0"]
    vitral.pretrain("cifar10:cifar", model="vit-nano4", image_size=16, out="run", overrides=settings, listener=ignore)
    monkeypatch.chdir(tmp_path)
    vitral.pretrain(resume=True, out="home/run", overrides=["steps=3"], listener=ignore)
    vitral.pretrain("cifar10:home/cifar", resume=True, out="home/run", overrides=["steps=4"], listener=ignore)


def test_a_published_dataset_is_never_written_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write(tmp_path / "cifar", cifar10_files())
    names = data / "cifar-10-batches-bin" / "batches.meta.txt"
    before = names.read_bytes()
    for command in (["evaluate", "--data", f"cifar10:{data}"], ["check", f"cifar10:{data}"]):
        assert main([*command, "--report", str(names), "--overwrite"]) == 1
        assert "batches.meta.txt" in capsys.readouterr().err
        assert names.read_bytes() == before
    with pytest.raises(StorageError):
        vitral.pretrain(f"cifar10:{data}", model="vit-nano4", image_size=16, out=data, overwrite=True, listener=ignore)
    assert names.read_bytes() == before
