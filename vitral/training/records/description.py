"""What a run folder says of how its run began and by what means it went on."""

import dataclasses
import json

from vitral.events import Listener, Message
from vitral.files import write_file
from vitral.training.planning.plan import Plan
from vitral.training.records.asked import read_run
from vitral.training.records.data_record import data_changes, keep_data
from vitral.training.records.environment import environment, git_state
from vitral.training.records.run_folder import RUN_FILE

RESUMED = "resumed_with"  # in run.json: other means than those it began with
BITS = ("threads", "torch", "processor", "accelerator")  # of the environment: what changes the last bits


def write_description(plan: Plan) -> None:
    """Write into the run folder how the run began, unless it says so already."""
    begun = read_run(plan.folder)
    if "environment" in begun:
        return  # it tells how the run began
    description = begun | {
        "kind": plan.kind,
        "data": plan.data_spec,
        "data_fingerprint": plan.data.fingerprint,
        "from": plan.start,
        "source": plan.classifier.provenance.source,
        "class_names": list(plan.data.class_names),
        "images": plan.data.counts(),
        "notes": list(plan.data.notes),
        "bad_images": [dataclasses.asdict(bad) for bad in plan.data.bad_images],
        "environment": environment(),
        "git": git_state(),
    }
    write_file(plan.folder / RUN_FILE, json.dumps(description, indent=2, default=str))
    keep_data(plan.folder, plan.data)


def compare_machines(plan: Plan, listener: Listener) -> None:
    """Warn of, and note, means that change the last bits of a run that goes on."""
    run = read_run(plan.folder)
    before, now = run.get("environment"), environment()
    if not isinstance(before, dict):
        return
    if differences := [
        f"{key} {before.get(key)}, now {now.get(key)}" for key in BITS if before.get(key) != now.get(key)
    ]:
        listener(
            Message(
                f"The run began with other means ({'; '.join(differences)}): it goes on, but its last bits will be others than "
                "those of a run that was not interrupted.",
                warning=True,
            )
        )
        resumed = run.get(RESUMED)
        entry = {key: now.get(key) for key in BITS}
        write_file(plan.folder / RUN_FILE, json.dumps(run | {RESUMED: [*(resumed or []), entry]}, indent=2))


def remarks_on(plan: Plan) -> tuple[str, ...]:
    """Return why running the recipe again would not give the same weights, one line each."""
    run = read_run(plan.folder)
    remarks = [f"the data changed after step {change.get('after_step')}" for change in data_changes(plan.folder)]
    remarks += (
        ["it was gone on with by other means (threads, versions or processor; see run.json)"]
        if run.get(RESUMED)
        else []
    )
    return tuple(remarks)
