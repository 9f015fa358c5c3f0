"""What a run folder says of how its run began and by what means it went on."""

import dataclasses
import json

from vitral.events import Listener, Message
from vitral.files import write_file
from vitral.layout import RUN_FILE
from vitral.training.planning.plan import Run
from vitral.training.records.asked import read_run
from vitral.training.records.data_record import Further, data_changes, keep_data
from vitral.training.records.environment import environment, git_state

RESUMED = "resumed_with"  # in run.json: other means than those it began with
BITS = ("threads", "torch", "processor", "accelerator")  # of the environment: what changes the last bits


def write_description(run: Run, further: Further) -> None:
    """Write into the run folder how the run began, and with which further data, unless it says so already."""
    begun = read_run(run.folder)
    start = {
        "from": None if run.kind == "pre-train" else run.plan.start,
        "source": run.classifier.provenance.source,
    }
    if "environment" in begun:  # it tells how the run began
        if run.plan.origin == "model" and begun.get("from") != run.plan.start:  # of which this was chosen again
            write_file(run.folder / RUN_FILE, json.dumps(begun | start, indent=2, default=str))
        return
    description = begun | {
        "kind": run.kind,
        "data": run.session.request.asked.required_data(),
        "data_fingerprint": run.data.fingerprint,
        "further_data": {name: {"data": data.name, "fingerprint": data.fingerprint} for name, data in further.items()},
        **start,
        "class_names": list(run.data.class_names),
        "images": run.data.counts(),
        "notes": list(run.data.notes),
        "bad_images": [dataclasses.asdict(bad) for bad in run.data.bad_images],
        "environment": environment(),
        "git": git_state(),
    }
    write_file(run.folder / RUN_FILE, json.dumps(description, indent=2, default=str))
    keep_data(run.folder, run.data, further)


def compare_machines(run: Run, listener: Listener) -> None:
    """Warn of, and note, means that change the last bits of a run that continues."""
    description = read_run(run.folder)
    before, now = description.get("environment"), environment()
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
        resumed = description.get(RESUMED)
        entry = {key: now.get(key) for key in BITS}
        write_file(run.folder / RUN_FILE, json.dumps(description | {RESUMED: [*(resumed or []), entry]}, indent=2))


def remarks_on(run: Run) -> tuple[str, ...]:
    """Return why running the recipe again would not give the same weights, one line each."""
    description = read_run(run.folder)
    remarks = [f"the data changed after step {change.get('after_step')}" for change in data_changes(run.folder)]
    remarks += (
        ["it was gone on with by other means (threads, versions or processor; see run.json)"]
        if description.get(RESUMED)
        else []
    )
    return tuple(remarks)
