"""The files in deploy/ for clusters: what their syntax allows, and that Vitral takes the commands in them.

The tables are facts of the programs that read the files: options of sbatch (Slurm 25.05, its manual), fields of SkyPilot's task
(0.14, sky/utils/schemas.py). Fields of a TrainJob are checked by Kubeflow's own types, see test_engines.py.
"""

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cases import every_case
from vitral.cli.commands import EXIT_STATUSES
from vitral.cli.main import app

DEPLOY = Path(__file__).parents[2] / "deploy"
SCRIPTS = sorted((DEPLOY / "slurm").glob("*.sbatch"))
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "clusters.md"
DURATION = r"(\d+-)?\d+(:\d\d){0,2}"
# Of sbatch: what each option takes, as far as our scripts use it or may come to.
SBATCH = {
    "account": r"[\w-]+",
    "array": r"[\d,-]+(%\d+)?",
    "constraint": r"\S+",
    "cpus-per-gpu": r"\d+",
    "cpus-per-task": r"\d+",
    "error": r"\S+",
    "exclusive": "",
    "gpus": r"(\w+:)?\d+",
    "gpus-per-node": r"(\w+:)?\d+",
    "gpus-per-task": r"(\w+:)?\d+",
    "job-name": r"[\w-]+",
    "mem": r"\d+[KMGT]?",
    "nodes": r"\d+(-\d+)?",
    "ntasks": r"\d+",
    "ntasks-per-node": r"\d+",
    "open-mode": "append|truncate",
    "output": r"\S+",
    "partition": r"[\w,-]+",
    "qos": r"[\w-]+",
    "requeue": "",
    "signal": r"([BR]{0,2}:)?(TERM|USR1|USR2|INT|HUP)(@\d+)?",
    "time": DURATION,
}
TASK = {"name", "num_nodes", "resources", "volumes", "file_mounts", "setup", "run", "envs", "workdir", "secrets"}
RESOURCES = {"accelerators", "use_spot", "job_recovery", "cpus", "memory", "infra", "image_id", "disk_size", "any_of"}
RECOVERY = {"strategy", "max_restarts_on_errors", "recover_on_exit_codes"}


@every_case("script", SCRIPTS, ids=lambda path: path.name)
def test_slurm_takes_the_scripts(script: Path) -> None:
    subprocess.run(["bash", "-n", script], check=True)
    lines = script.read_text().splitlines()
    directives = [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH")]
    assert len(directives) > 5
    for directive in directives:
        name, _, value = directive.removeprefix("--").partition("=")
        assert directive.startswith("--"), directive
        assert re.fullmatch(SBATCH[name], value), directive
    # sbatch reads no directive after the first command.
    first = next(number for number, line in enumerate(lines) if line and not line.startswith("#"))
    assert not any(line.startswith("#SBATCH") for line in lines[first:])
    if checker := shutil.which("shellcheck"):
        subprocess.run([checker, script], check=True)


def test_skypilot_takes_the_task() -> None:
    task: dict[str, Any] = yaml.safe_load((DEPLOY / "skypilot.yaml").read_text())
    assert task.keys() <= TASK
    assert task["resources"].keys() <= RESOURCES
    assert task["resources"]["job_recovery"].keys() <= RECOVERY
    assert all(path.startswith("/") for path in [*task["volumes"], *task["file_mounts"]])
    subprocess.run(["bash", "-n"], input=task["run"], text=True, check=True)
    words = shlex.split(task["run"])
    assert_typed(words)
    assert words[words.index("--out") + 1].startswith(next(iter(task["volumes"])))


def test_the_train_job_starts_vitral() -> None:
    job: dict[str, Any] = yaml.safe_load((DEPLOY / "trainjob.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("trainer.kubeflow.org/v1alpha1", "TrainJob")
    assert_typed(job["spec"]["trainer"]["command"])
    (patch,) = job["spec"]["runtimePatches"]
    (node,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    pod = node["template"]["spec"]["template"]["spec"]
    mounts = {mount["name"] for container in pod["containers"] for mount in container["volumeMounts"]}
    assert mounts == {volume["name"] for volume in pod["volumes"]}


def assert_typed(words: list[str]) -> None:
    """Check that Vitral takes what torchrun starts."""
    arguments = words[words.index("vitral") + 1 :]
    function, _, _ = app.parse_args(arguments, exit_on_error=False, print_error=False)
    assert callable(function)
    assert "--resume" in arguments


def test_every_exit_status_of_a_training_is_on_the_page() -> None:
    table = [line for line in PAGE.read_text().splitlines() if re.match(r"\| [\d, ]+ \|", line)]
    stated = {int(number) for line in table for number in re.findall(r"\d+", line.split("|")[1])}
    assert stated == {status for status in EXIT_STATUSES if status != 141} | {137}  # of a reader; not our own


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_what_is_put_back_into_the_queue_can_go_on(script: Path) -> None:
    (case,) = re.findall(r"^    ([\d |]+)\)", script.read_text(), re.MULTILINE)
    again = {int(number) for number in case.split("|")}
    assert again <= EXIT_STATUSES.keys() | {137}
    assert again.isdisjoint({0, 1, 2, 130})  # done, wrong, and stopped by a person
