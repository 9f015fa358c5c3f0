"""Requests whose answers are known: images of every format and of many sizes, in every form of request."""

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import vitral
from tests.serving.clients import request
from tests.serving.conftest import Reply, encoded, form
from tests.serving.test_serve import JSON, infer
from vitral.events import ignore

IMAGES = 40
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP")
NEAR = 1e-4  # of a probability in fp32


@dataclass(frozen=True)
class Question:
    """A request whose answer is known.

    Attributes:
        content: Makes its bytes under a name.
        read: Takes the probabilities of classes from its answer.
        expected: Those of `predict`.
    """

    content: Callable[[str], bytes]
    read: Callable[[Any], dict[str, float]]
    expected: dict[str, float]

    def check(self, reply: Reply, name: str, *, exactly: bool = False) -> None:
        assert reply.status == 200, reply.body
        assert reply.headers["x-request-id"] == name  # neither another's nor one that was given twice
        found = self.read(reply.json)
        assert found == (self.expected if exactly else pytest.approx(self.expected, abs=NEAR))


def of_top(told: Any) -> dict[str, float]:  # noqa: ANN401  # any JSON value
    return {row["label"]: row["probability"] for row in told["predictions"][-1]["top"]}


def of_tensor(told: Any) -> dict[str, float]:  # noqa: ANN401
    return dict(zip("abc", told["outputs"][0]["data"], strict=True))


def of_scores(told: Any) -> dict[str, float]:  # noqa: ANN401
    return {row["label"]: row["score"] for row in told}


def asked(path: str, body: bytes, kind: str = "image/jpeg") -> Callable[[str], bytes]:
    return lambda name: request(path, body, Content_Type=kind, X_Request_ID=name)


def questions_of(home: Path) -> list[Question]:
    """Return questions for a server whose classifier "noise" is in a folder."""
    contents = [encoded(seed, FORMATS[seed % len(FORMATS)], 32 + 48 * (seed % 7)) for seed in range(IMAGES)]
    classifier = vitral.load(home / "noise", listener=ignore)
    offline = [classifier.predict(content, top=3)[0] for content in contents]  # alone: a batch has other bits
    made = []
    for number, (content, answer) in enumerate(zip(contents, offline, strict=True)):
        several, kind = form(("other.jpg", contents[0]), ("mine", content))
        text = base64.b64encode(content).decode()
        forms: list[tuple[Callable[[str], bytes], Callable[[Any], dict[str, float]]]] = [
            (asked("/v1/predict?top=3", content), of_top),
            (asked("/v1/predict?top=3", several, kind), of_top),
            (asked("/predictions/noise", content), dict),
            (asked("/v2/models/noise/infer", infer(text), JSON), of_tensor),
            (asked("/", json.dumps({"inputs": text}).encode(), JSON), of_scores),
        ]
        ask, read = forms[number % 5 if number % 2 else 0]
        made.append(Question(ask, read, dict(answer.top)))
    return made
