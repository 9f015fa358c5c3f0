"""A small study for the pages' tests."""

from vitral.report.study import Study, StudyArm
from vitral.tasks.single_label import SingleLabel


def compared(*arms: tuple[str, tuple[float, ...]]) -> Study:
    """Accuracies of several arms."""
    shown = (StudyArm(name, tuple({"top1": value} for value in values)) for name, values in arms)
    return Study("Compared", SingleLabel.headline, tuple(shown))
