"""The scripts for Slurm, run by bash: what Slurm does is played by two programs, what the processes do is real."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
# As many tasks as Slurm is asked for, each with its number; the end is that of the highest status, as Slurm's manual says.
SRUN = f"""#!{sys.executable}
import os, subprocess, sys
command = sys.argv[1:]
while command[0].startswith("--"):
    command.pop(0)
tasks = [
    subprocess.Popen(command, env=os.environ | {{"SLURM_PROCID": str(number), "SLURM_LOCALID": str(number)}})
    for number in range(int(os.environ["SLURM_NTASKS"]))
]
with open("tasks", "w") as file:
    print(*(task.pid for task in tasks), file=file)
statuses = [task.wait() for task in tasks]
sys.exit(max(status if status >= 0 else 128 - status for status in statuses))
"""
SCONTROL = """#!/bin/bash
if [ "$1" = show ]; then echo 127.0.0.1; else echo "$@" >> requeued; fi
"""
VITRAL = f"""#!/bin/bash
exec {sys.executable} -m vitral "$@"
"""
SETTINGS = ("steps=60", "batch_size=16", "workers=0", "checkpoint.every_steps=1", "image_size=16", "precision=fp32")


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """A folder with Slurm's programs."""
    for name, text in {"srun": SRUN, "scontrol": SCONTROL, "vitral": VITRAL}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    return tmp_path


def submit(
    cluster: Path, script: str, *arguments: str, tasks: int, more: Mapping[str, str] = {}
) -> subprocess.Popen[str]:
    job = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_JOB_NODELIST": "node", "SLURM_NTASKS": str(tasks)}
    environment = {**os.environ, **job, "SLURM_CPUS_PER_TASK": "1", "PATH": f"{cluster}:{os.environ['PATH']}", **more}
    environment |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = ["bash", str(ROOT / "deploy" / "slurm" / script), *arguments]
    return subprocess.Popen(command, cwd=cluster, env=environment, stderr=subprocess.PIPE, text=True)


def finetune(cluster: Path) -> subprocess.Popen[str]:
    settings = [part for setting in SETTINGS for part in ("--set", setting)]
    return submit(
        cluster,
        "finetune.sbatch",
        "digits",
        "run",
        "--from",
        "vit-mu4",
        "--offline",
        "--no-baselines",
        *settings,
        tasks=2,
    )


def test_a_job_whose_time_is_up_is_saved_put_back_and_goes_on(cluster: Path) -> None:
    job = finetune(cluster)
    while job.poll() is None and not (cluster / "run" / "checkpoints" / "last").exists():
        time.sleep(0.05)
    for task in (cluster / "tasks").read_text().split():
        os.kill(int(task), signal.SIGTERM)
    _, errors = job.communicate(timeout=120)
    assert job.returncode == 143, errors
    assert (cluster / "requeued").read_text().split() == ["requeue", str(os.getpid())]
    again = finetune(cluster)
    _, errors = again.communicate(timeout=180)
    assert again.returncode == 0, errors
    assert len((cluster / "requeued").read_text().splitlines()) == 1
    assert (cluster / "run" / "classifier").is_dir()


def test_a_job_with_wrong_data_is_not_put_back(cluster: Path) -> None:
    job = submit(cluster, "finetune.sbatch", "nowhere/", "run", tasks=1)
    _, errors = job.communicate(timeout=60)
    assert job.returncode == 1
    assert "nowhere" in errors.splitlines()[-1]
    assert not (cluster / "requeued").exists()


def test_a_job_that_loses_a_process_is_put_back(cluster: Path) -> None:
    job = finetune(cluster)
    while job.poll() is None and not (cluster / "run" / "checkpoints" / "last").exists():
        time.sleep(0.05)
    os.kill(int((cluster / "tasks").read_text().split()[1]), signal.SIGKILL)
    _, errors = job.communicate(timeout=120)
    assert "lost another process" in errors
    assert (cluster / "requeued").exists()
