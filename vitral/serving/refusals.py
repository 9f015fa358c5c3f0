"""Why a request gets no answer: an HTTP status, a word for programs and a sentence for people."""

from vitral.errors import ImageError, ImageTooLarge, OutOfMemory, UnknownFormat, VitralError


class RequestRefused(Exception):
    """A request, or one image of it, that gets no answer.

    Attributes:
        code: A word for programs.
        message: One line for people, without paths of this machine.
        retry_after: Seconds after which it may be tried again; None where that would not help.
    """

    def __init__(self, status: int, code: str, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.retry_after = status, code, message, retry_after

    def to_json(self) -> dict[str, str]:
        """Return it as the JSON object that every form of answer has."""
        return {"error": self.message, "code": self.code}

    def headers(self) -> dict[str, str]:
        """Return its HTTP headers."""
        return {} if self.retry_after is None else {"retry-after": str(self.retry_after)}


def too_late() -> RequestRefused:
    """Return the refusal of a request whose time is over."""
    return RequestRefused(504, "deadline", "The answer was not there in time; try again later, or allow more time.")


def damaged() -> RequestRefused:
    """Return the refusal of an image for which the network gives no number."""
    return RequestRefused(
        500, "damaged_network", "The network gives no number for this image: its weights are damaged."
    )


def malformed(message: str) -> RequestRefused:
    """Return the refusal of a request that cannot be understood."""
    return RequestRefused(400, "malformed", message)


def refusal_of(error: BaseException) -> RequestRefused:
    """Return what a client is told of an error."""
    if isinstance(error, RequestRefused):
        return error
    if isinstance(error, UnknownFormat):
        return RequestRefused(415, "not_an_image", str(error))
    if isinstance(error, ImageTooLarge):
        return RequestRefused(413, "too_many_pixels", str(error))
    if isinstance(error, ImageError):
        return RequestRefused(422, "unreadable_image", str(error))
    if isinstance(error, OutOfMemory):
        return RequestRefused(
            503, "out_of_memory", "There is not enough memory just now; try again later.", retry_after=1
        )
    if isinstance(error, VitralError):
        return RequestRefused(422, "not_possible", str(error))
    return RequestRefused(
        500, "internal", "The server made a mistake; its log has the details under this request's id."
    )
