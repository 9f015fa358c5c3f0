"""Which classifier a command uses: the one that is named, or the newest run, which is then reported to the user."""

from vitral.classifier.classifier import Classifier
from vitral.classifier.folder import setting_of
from vitral.classifier.load import load
from vitral.cli.console import ConsoleListener
from vitral.errors import WeightsError
from vitral.events import Message
from vitral.inference.engines import EngineChoice, PrecisionChoice
from vitral.paths import RUNS
from vitral.training.records.run_folder import newest_classifier


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

    Args:
        classifier: The value of `--classifier`; None for the newest run.
        listener: The receiver of which run is used, and of a warning if its own scores are poor.
        engine: The engine, as `load` takes it.
        precision: The precision, as `load` takes it.
        merge: The tokens to merge, as `load` takes them.
        otherwise: The precision where none is given and the classifier has no setting of its own.
        tuned: Whether a setting of the folder's is taken where none is given, as `load` takes it.

    Raises:
        WeightsError: There is no such classifier, or no run yet.
        ModelError: There is no such engine.
    """
    name = classifier or _newest()
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
        classifier = _newest()
        listener(Message(f"Of {classifier}, the newest run; --classifier names another."))
    return classifier


def _newest() -> str:
    classifier = newest_classifier()
    if classifier is None:
        raise WeightsError(
            f"No run in '{RUNS}' has a classifier yet; name one with --classifier, or run 'vitral finetune' first."
        )
    return str(classifier.parent)


def _facts(source: Classifier) -> str:
    scores = source.provenance.scores
    right = [
        f"{value:.1%} of its {name.removesuffix('/top1')} images right"
        for name, value in scores.items()
        if name.endswith("/top1")
    ]
    return ", ".join([source.predictor.describe(), f"{len(source.class_names)} classes", *right])
