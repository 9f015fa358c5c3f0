"""Strange surroundings of a command: an environment of no job, plugins that end it, too little memory, a terminal that goes."""

import os
import pty
import resource
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

from tests.cases import every_case
from tests.forks import Fork, command, program, type_command
from vitral import torchrun
from vitral.cli.main import main
from vitral.errors import OutOfMemory, PluginError, TrainingError, WeightsError, is_out_of_memory
from vitral.plugins import load_plugin
from vitral.weights.containers import read_tensors, write_safetensors

OURS = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
FULL = {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


@every_case(
    ("environment", "named"),
    (
        ({"WORLD_SIZE": "2"}, "RANK"),
        ({"WORLD_SIZE": "x"}, "WORLD_SIZE"),
        ({"WORLD_SIZE": "-2"}, "WORLD_SIZE"),
        ({"WORLD_SIZE": "٢"}, "WORLD_SIZE"),
        ({"WORLD_SIZE": "2.0"}, "WORLD_SIZE"),
        (FULL | {"RANK": "x"}, "RANK"),
        (FULL | {"RANK": "2"}, "RANK"),
        (FULL | {"MASTER_PORT": "x"}, "MASTER_PORT"),
        (FULL | {"MASTER_PORT": "99999999"}, "99999999"),
        (FULL | {"MASTER_ADDR": ""}, "MASTER_ADDR"),
    ),
)
def test_an_environment_of_no_job_is_refused(
    environment: Mapping[str, str], named: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert main(["finetune", "--data", "digits"]) == 1
    line = capsys.readouterr().err
    assert len(line.splitlines()) == 1
    assert named in line
    assert "torchrun" in line


@every_case("rank", ("x", "1", "-1", "7", ""))
def test_a_rank_alone_is_no_job(rank: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("RANK", rank)
    assert torchrun.is_main()
    assert main(["recipes"]) == 0
    assert "recipes" in capsys.readouterr().out
    assert main(["recipes", "nothing"]) == 1
    assert "process" not in capsys.readouterr().err


def test_counts_of_restarts_are_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "x")
    with pytest.raises(TrainingError, match="TORCHELASTIC_RESTART_COUNT"):
        torchrun.is_restart()


@every_case(
    "line", ("raise SystemExit(0)", "raise GeneratorExit", "import sys; sys.exit('bye')", "raise BaseException('x')")
)
def test_a_plugin_that_ends_the_command_is_refused(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(f"x = 1\n{line}\n")
    with pytest.raises(PluginError, match=r"mine\.py.*line 2"):
        load_plugin(file)
    assert main(["recipes", "--plugin", str(file)]) == 1
    assert "mine.py" in capsys.readouterr().err


def test_what_is_no_file_is_no_plugin(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    for path in (tmp_path / "pipe.py", Path("/dev/zero"), tmp_path):
        with pytest.raises(PluginError, match=path.name):
            load_plugin(path)


def test_a_plugin_that_ends_the_command_later_is_said(tmp_path: Path) -> None:
    file = tmp_path / "late.py"
    file.write_text("import sys, vitral\nvitral.register('data', 'leaving', lambda text: sys.exit(0))\n")
    done = type_command(tmp_path, "check", "leaving:x", "--plugin", str(file))
    assert done.returncode == 1
    assert "SystemExit" in done.stderr


def test_a_lack_of_memory_is_known_by_its_words() -> None:
    with pytest.raises(RuntimeError) as asked:
        torch.empty(1 << 60, dtype=torch.uint8)
    assert is_out_of_memory(asked.value)
    with pytest.raises(MemoryError) as array:
        np.empty(1 << 60, np.uint8)
    assert is_out_of_memory(array.value)
    assert is_out_of_memory(OSError(12, os.strerror(12)))
    assert not is_out_of_memory(ValueError("no number"))
    assert not is_out_of_memory(WeightsError("'out of memory.npz' is missing"))


def _little_memory(arguments: tuple[str, ...], mebibytes: int) -> int:
    with open("/proc/self/statm") as file:
        taken = int(file.read().split()[0]) * resource.getpagesize()
    limit = taken + (mebibytes << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    return main(arguments)


@pytest.mark.parametrize("form", ["safetensors", "npz", "pth"])
def test_sound_weights_are_never_damaged_for_lack_of_memory(form: str, tmp_path: Path) -> None:
    tensors = {"a": torch.zeros(64 << 18)}  # 64 MiB
    path = tmp_path / f"w.{form}"
    if form == "safetensors":
        write_safetensors(tensors, path)
    elif form == "npz":
        np.savez(path, a=tensors["a"].numpy())
    else:
        torch.save(tensors, path)
    ended = Fork(_read, str(path)).ended()
    assert ended.returncode == 0, ended.stderr
    assert "damaged" not in ended.stdout
    assert str(path) in ended.stdout


def _read(path: str) -> int:
    with open("/proc/self/statm") as file:
        taken = int(file.read().split()[0]) * resource.getpagesize()
    for more in (1 << 20, 8 << 20, 40 << 20):
        resource.setrlimit(resource.RLIMIT_AS, (taken + more, resource.RLIM_INFINITY))
        try:
            read_tensors(path)
        except OutOfMemory as error:
            print(error)
    return 0


@pytest.mark.long
@pytest.mark.parametrize("mebibytes", [1, 8, 64])
def test_a_command_in_little_memory_is_one_line(mebibytes: int, there: Path) -> None:
    arguments = ("predict", "photos", "--precision", "fp32")
    ended = Fork(_little_memory, arguments, mebibytes, folder=there).ended()
    assert "Traceback" not in ended.stderr
    assert "damaged" not in ended.stderr
    assert ended.returncode in (0, 1, 75)
    assert ended.returncode == 0 or ended.stderr.splitlines()[-1].startswith("vitral: ")


def endless(path: Path) -> None:
    """Write a network that counts for ever before it answers; a node's name holds a terminal's command."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["more"], ["again"], name="\x1b[31mred"),
            helper.make_node("Add", ["sum", "one"], ["next"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("turn", TensorProto.INT64, []),
            helper.make_tensor_value_info("more", TensorProto.BOOL, []),
            helper.make_tensor_value_info("sum", TensorProto.FLOAT, [1, 3]),
        ],
        [
            helper.make_tensor_value_info("again", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, [1, 3]),
        ],
        [helper.make_tensor("one", TensorProto.FLOAT, [1, 3], [1.0] * 3)],
    )
    nodes = [
        helper.make_node("GlobalAveragePool", ["images"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("Loop", ["", "true", "flat"], ["logits"], body=body, name="\x1b[31mloop"),
    ]
    graph = helper.make_graph(
        nodes,
        "endless",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 3])],
        [helper.make_tensor("true", TensorProto.BOOL, [], [True])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)


def test_an_endless_network_ends_at_a_stop(there: Path, tmp_path: Path) -> None:
    endless(tmp_path / "endless.onnx")
    photo = next((there / "photos").rglob("*.jpg"))
    process = Fork(program, ("predict", str(photo), "--classifier", str(tmp_path / "endless.onnx")), folder=tmp_path)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and _cpu_seconds(process.pid) < 3 and process.poll() is None:
        time.sleep(0.1)
    assert process.poll() is None, process.ended().stderr
    process.send_signal(signal.SIGINT)
    ended = process.ended(30)
    assert ended.returncode == 128 + signal.SIGINT
    assert "Interrupted" in ended.stderr
    assert "\x1b" not in ended.stderr + ended.stdout


def _cpu_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


LEARNING = (
    "finetune",
    "--data",
    "digits",
    "--from",
    "vit-mu16",
    "--image-size",
    "32",
    "--no-baselines",
    "--out",
    "run",
)


@pytest.mark.long
def test_a_run_outlives_its_terminal_to_save_itself(tmp_path: Path) -> None:
    """The terminal is closed, as by a lost connection: SIGHUP comes, and nothing can be written there any more."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # tests that run under nohup ignore it, and what they start would
        os.execvpe(sys.executable, [sys.executable, "-m", "vitral", *LEARNING, "--set", "steps=100000"], OURS)
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline and not (tmp_path / "run" / "metrics.jsonl").exists():
        os.read(terminal, 1 << 16)
    time.sleep(2)
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 128 + signal.SIGHUP
    (checkpoint,) = (tmp_path / "run" / "checkpoints").glob("step-*")
    assert int(checkpoint.name.removeprefix("step-")) > 0
    assert not list(tmp_path.rglob(".vitral-*"))


def _under_nohup(arguments: tuple[str, ...]) -> int:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    return command(arguments)


@pytest.mark.long
def test_under_nohup_a_run_goes_on(tmp_path: Path) -> None:
    steps = ("--set", "steps=60", "--set", "checkpoint.every_steps=5", "--set", "workers=0")
    process = Fork(_under_nohup, (*LEARNING, *steps), folder=tmp_path)
    while process.poll() is None:
        if (tmp_path / "run" / "run.json").exists():
            process.send_signal(signal.SIGHUP)
        time.sleep(0.3)
    ended = process.ended()
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT])
def test_a_stop_outside_of_training_leaves_no_lock_and_no_half_file(
    number: signal.Signals, there: Path, tmp_path: Path
) -> None:
    out = tmp_path / "rows.csv"
    line = ("predict", *["photos"] * 200, "--precision", "fp32", "--out", str(out))
    process = Fork(program, line, folder=there)
    parts = tmp_path / "rows.csv.parts"
    while process.poll() is None and not parts.exists():
        time.sleep(0.05)
    process.send_signal(number)
    ended = process.ended(60)
    assert ended.returncode == 128 + number, ended.stderr
    assert len([text for text in ended.stderr.splitlines() if text.startswith("vitral: ")]) == 1
    assert not list(tmp_path.rglob(".vitral-*"))
    again = type_command(there, "predict", "photos", "--precision", "fp32", "--out", str(tmp_path / "x.csv"))
    assert again.returncode == 0, again.stderr
