"""A network from scratch beside a start: given up while it trains once it is expected to end behind the best so far.

It has the rest of the time once it is ahead.
"""

from collections.abc import Callable

from vitral import distributed
from vitral.errors import VitralError
from vitral.events import Listener, Message
from vitral.models.model import Model
from vitral.tasks.task import Figure
from vitral.training.candidates.result import Choice
from vitral.training.choose.attempts import is_ahead, is_behind
from vitral.training.clock import Pacer
from vitral.training.loop import Validate


class AttemptBehind(VitralError):
    """One of several attempts is given up, because another is expected to end better."""


def compared(
    validate: Validate, headline: Figure, pacer: Pacer, whole: Pacer, choose: Callable[[], Choice | None]
) -> Validate:
    """Return a validation that also compares the attempt with what was chosen so far.

    It raises `AttemptBehind` once the attempt is behind, and gives it the rest of the time once it is ahead. Without a time
    budget there is nothing to be won by that, and it is the validation itself.

    Args:
        validate: The validation.
        headline: What its first figure is.
        pacer: Paces the attempt.
        whole: Paces the run, to its end.
        choose: Returns what is the best so far.
    """
    if pacer.seconds is None:
        return validate
    given, alone = pacer.clock.left(), pacer.clock == whole.clock

    def validated(model: Model, listener: Listener, stop: Callable[[], bool]) -> dict[str, float] | None:
        figures, choice = validate(model, listener, stop), choose()
        gone = distributed.broadcast(1 - pacer.clock.left() / given)
        if figures is None or choice is None or (pacer.clock == whole.clock and not alone):
            return figures
        figure, best = next(iter(figures.values())), choice.kept
        reached = f"{headline.text(figure)} on the validation photos, the {best.title} {headline.text(best.figure)}"
        if is_behind(figure, gone, best.figure, best.images):
            raise AttemptBehind(f"After {gone:.0%} of its time it reaches {reached}.")
        if not alone and is_ahead(figure, gone, best.figure, best.images):
            listener(Message(f"After {gone:.0%} of its time it reaches {reached}: it has the rest of the time, too."))
            pacer.extend(whole)
        return figures

    return validated
