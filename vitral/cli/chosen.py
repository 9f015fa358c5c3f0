"""Which classifier a command uses: the one that is named, or the newest run, which is then reported to the user."""

from vitral.advice import counted
from vitral.classifier.classifier import Classifier
from vitral.classifier.folder import setting_of
from vitral.classifier.load import load
from vitral.cli.console import ConsoleListener
from vitral.data.names import some
from vitral.errors import WeightsError
from vitral.events import Message
from vitral.inference.engines import EngineChoice, PrecisionChoice
from vitral.paths import RUNS
from vitral.training.records.overview import RunState, list_runs


def choose(
    classifier: str | None,
    listener: ConsoleListener,
    *,
    engine: EngineChoice | None = None,
    precision: PrecisionChoice | None = None,
    merge: int | None = None,
    otherwise: PrecisionChoice | None = None,
    tuned: bool = True,
) -> tuple[str, Classifier]:
    """Return the classifier's name and the classifier, after reporting what a user should know about it.

    Engine, precision, merging and `tuned` are as `load` takes them; `otherwise` is the precision where none is given and the
    classifier has no setting of its own.

    Raises:
        WeightsError: There is no such classifier, or no run yet.
        ModelError: There is no such engine.
    """
    name = classifier or _newest(listener)
    if precision is None and setting_of(name) is None:
        precision = otherwise
    source = load(name, engine=engine, precision=precision, merge=merge, tuned=tuned, listener=listener)
    if classifier is None:
        listener(Message(f"Answered by {name}, the newest run ({_facts(source)}); --classifier names another."))
    listener.note(source.provenance)
    return name, source


def name_of(classifier: str | None, listener: ConsoleListener) -> str:
    """Return what `--classifier` says, or the newest run, which is then told to the listener.

    Raises:
        WeightsError: There is no run yet.
    """
    if classifier is None:
        classifier = _newest(listener)
        listener(Message(f"Of {classifier}, the newest run; --classifier names another."))
    return classifier


def _newest(listener: ConsoleListener) -> str:
    """Return the newest run that is done, or else the newest with a classifier; say which newer ones are passed over."""
    every = list_runs(studies=False)
    usable = [run for run in every if run.classifier is not None]
    chosen = next((run for run in usable if run.state == "done"), next(iter(usable), None))
    if chosen is None:
        raise WeightsError(
            f"No run in '{RUNS}' has a classifier yet; name one with --classifier, or run 'vitral finetune' first."
        )
    newer = [f"{run.folder} ({_standing(run)})" for run in every[: every.index(chosen)]]
    if newer:
        listener(Message(f"Newer, but not taken: {some(newer)}; --classifier names another.", warning=True))
    if chosen.state != "done":
        listener(Message(f"No run is done; of {chosen.folder} ({_standing(chosen)}) its best so far.", warning=True))
    return chosen.folder


def _standing(run: RunState) -> str:
    state = "still running" if run.state == "running" else "stopped before it was done"
    return state if run.classifier is not None or run.state == "done" else f"{state}, without a classifier"


def _facts(source: Classifier) -> str:
    scores = source.provenance.scores
    right = [
        f"{value:.1%} of its {name.removesuffix('/top1')} photos right"
        for name, value in scores.items()
        if name.endswith("/top1")
    ]
    return ", ".join([source.predictor.describe(), counted(len(source.class_names), "class", "classes"), *right])
