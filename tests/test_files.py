"""What interrupted writes leave is deleted once its writer is dead; long names and the user's own files are safe."""

import dataclasses
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vitral.errors import StorageError
from vitral.files import TEMPORARY_PREFIX, Owner, new_folder, restore_swapped, this_process, write_file


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


def test_a_pipe_is_never_renamed_over(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StorageError, match="it is a pipe"):
        write_file(tmp_path / "pipe", "")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(StorageError, match="it is a file"), new_folder(tmp_path / "file"):
        pass
    assert (tmp_path / "pipe").is_fifo()
    assert (tmp_path / "file").read_text() == "mine"
