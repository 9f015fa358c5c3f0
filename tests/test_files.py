"""What interrupted writes leave is deleted once its writer is dead; long names and the user's own files are safe."""

import dataclasses
import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cases import every_case
from vitral.errors import StorageError
from vitral.files import TEMPORARY_PREFIX, Owner, new_folder, restore_swapped, this_process, write_file
from vitral.outputs import check_location, locked


def left_by(owner: Owner, folder: Path) -> Path:
    path = folder / f"{TEMPORARY_PREFIX}{owner.machine}-{owner.boot}-{owner.pid}-{owner.started}-0"
    path.mkdir()
    (path / "half").write_text("")
    return path


def test_what_a_killed_process_left_is_deleted(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path; from vitral.files import new_file\n"
        "with new_file(Path(sys.argv[1])) as partial:\n"
        "    partial.write_text('half'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "a.txt")], check=False)
    assert len(list(tmp_path.iterdir())) == 1
    write_file(tmp_path / "b.txt", "whole")
    assert [path.name for path in tmp_path.iterdir()] == ["b.txt"]


def test_only_abandoned_files_are_deleted(tmp_path: Path) -> None:
    me = this_process()
    mine, afar = left_by(me, tmp_path), left_by(dataclasses.replace(me, machine="afar"), tmp_path)
    before = left_by(dataclasses.replace(me, boot="before"), tmp_path)
    again = left_by(dataclasses.replace(me, started=me.started + 1), tmp_path)  # the number was given away again
    write_file(tmp_path / "a", "")
    assert (mine.exists(), afar.exists(), before.exists(), again.exists()) == (True, True, False, False)
    yesterday = time.time() - 100_000
    os.utime(afar, (yesterday, yesterday))
    write_file(tmp_path / "a", "")
    assert (mine.exists(), afar.exists()) == (True, False)


def test_the_longest_names_can_be_written(tmp_path: Path) -> None:
    name = "é" * 127
    for text in ("old", "new"):
        write_file(tmp_path / name / name, text)
        with new_folder(tmp_path / (name + "x")) as partial:
            (partial / "a").write_text(text)
    assert (tmp_path / name / name).read_text() == "new"
    assert (tmp_path / (name + "x") / "a").read_text() == "new"
    restore_swapped(tmp_path / (name + "x"))
    assert len(list(tmp_path.iterdir())) == 2


def test_a_replaced_folder_keeps_what_is_not_ours(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "notes" / "deep").mkdir(parents=True)
    (folder / "notes" / "deep" / "a.txt").write_text("mine")
    (folder / "link").symlink_to("nowhere")
    (folder / "ours").write_text("old")
    with new_folder(folder, own=("ours",)) as partial:
        (partial / "ours").write_text("new")
    assert (folder / "ours").read_text() == "new"
    assert (folder / "notes" / "deep" / "a.txt").read_text() == "mine"
    assert os.readlink(folder / "link") == "nowhere"


def test_a_save_after_one_that_was_killed_between_its_two_renames_keeps_the_users_files(tmp_path: Path) -> None:
    folder = tmp_path / "classifier"
    folder.mkdir()
    (folder / "weights").write_text("old")
    (folder / "notes.txt").write_text("mine")
    code = (
        "import os, signal, sys; from pathlib import Path; from vitral import files\n"
        "rename = os.rename\n"
        "os.rename = lambda old, new: os.kill(os.getpid(), 9) if new == Path(sys.argv[1]) else rename(old, new)\n"
        "with files.new_folder(Path(sys.argv[1]), own=('weights',)) as partial:\n"
        "    (partial / 'weights').write_text('new')"
    )
    subprocess.run([sys.executable, "-c", code, str(folder)], check=False)
    assert not folder.exists()
    with new_folder(folder, own=("weights",)) as partial:
        (partial / "weights").write_text("newer")
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"weights": "newer", "notes.txt": "mine"}
    assert [path.name for path in tmp_path.iterdir()] == ["classifier"]


def test_a_signal_between_the_two_renames_leaves_the_older_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "classifier"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    rename = os.rename

    def interrupted(old: Path, new: Path) -> None:
        rename(old, new)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), new_folder(folder, own=("weights",)):  # raised as it ends
        monkeypatch.setattr(os, "rename", interrupted)
    monkeypatch.undo()
    assert [path.name for path in tmp_path.rglob("*")] == ["classifier", "notes.txt"]


def test_a_place_that_is_tried_is_left_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path; from vitral.outputs import check_location\n"
        "Path.rmdir = os.rmdir = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "check_location(Path(sys.argv[1]))"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "new")], check=False)
    assert len(list(tmp_path.iterdir())) == 1
    check_location(tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


@every_case("call", ["ftruncate", "write", "fsync"])
def test_a_lock_that_a_full_disk_does_not_take_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, full)
    with pytest.raises(StorageError, match="disk is full"), locked(tmp_path):
        pass
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == []
    with locked(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_pipe_is_never_renamed_over(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StorageError, match="it is a pipe"):
        write_file(tmp_path / "pipe", "")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(StorageError, match="it is a file"), new_folder(tmp_path / "file"):
        pass
    assert (tmp_path / "pipe").is_fifo()
    assert (tmp_path / "file").read_text() == "mine"
