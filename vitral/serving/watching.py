"""A classifier that changes on disk is loaded beside the one in service and takes its place once it is warm, if it can."""

import threading
from collections.abc import Callable, Mapping

from vitral.classifier.folder import state_of_files
from vitral.errors import one_line
from vitral.serving.service import Service

LOOK_SECONDS = 1.0  # between two looks


class Watcher:
    """Looks at classifiers' files, and loads those that have changed and are settled.

    Args:
        service: Where they are in service.
        loads: By the name under which each is served, where it is and what takes it into service anew.
        tell: Hears of what was loaded, and of what could not be.
    """

    def __init__(
        self, service: Service, loads: Mapping[str, tuple[str, Callable[[], object]]], tell: Callable[[str, str], None]
    ) -> None:
        self.service, self.loads, self.tell = service, loads, tell
        self.taken = {name: state_of_files(source) for name, (source, _) in loads.items()}
        self.seen = dict(self.taken)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watcher", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Look no more."""
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            for name, (source, load) in self.loads.items():
                self._look(name, source, load)

    def _look(self, name: str, source: str, load: Callable[[], object]) -> None:
        """Load what has changed, once it looks the same twice: nothing is then writing it."""
        now, before = state_of_files(source), self.seen[name]
        self.seen[name] = now
        if not now or now == self.taken[name] or now != before:
            return
        self.taken[name] = now  # one that fails is tried again when it changes again
        try:
            load()
            self.tell(name, f"version {self.service.models[name].version} is in service")
        except Exception as error:  # whatever came of unfinished files, the version in service is as it was
            self.tell(name, f"the version in service stays; the new one cannot be loaded: {one_line(error)}")
