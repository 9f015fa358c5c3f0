"""Runs kept in a JSON file: one that is there already, of the same versions, is not made again, unless it failed."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

Run = dict[str, Any]


class Kept:
    """The runs of a benchmark.

    Args:
        path: the file, which need not exist yet; None keeps nothing on disk.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._runs: list[dict[str, Any]] = []
        if path is not None and path.is_file():
            self._runs = json.loads(path.read_text())
            if not isinstance(self._runs, list):
                raise SystemExit(f"'{path}' holds no list of runs; give another file.")

    def get(self, question: dict[str, Any], make: Callable[[], Run]) -> Run:
        """Return the run that answers a question (arm, data, seed, seconds, versions): a kept one, or a new one."""
        for entry in self._runs:
            if entry["question"] == question:
                return entry["run"]
        run = make()
        if "failed" in run:  # the next time may go better
            return run
        self._runs.append({"question": question, "run": run})
        if self._path is not None:
            beside = self._path.with_name(f"{self._path.name}.new")
            beside.write_text(json.dumps(self._runs, indent=1))
            os.replace(beside, self._path)
        return run
