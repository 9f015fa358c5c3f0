"""`vitral serve` over a socket: its answers are those of `predict`, and what is wrong has a status and one line of JSON."""

from pathlib import Path

import pytest

import vitral
from tests.serving.conftest import Running, encoded
from vitral.events import ignore


def test_a_photo_is_answered_as_by_predict(server: Running, served_home: Path) -> None:
    (expected,) = vitral.load(served_home / "noise", listener=ignore).predict(encoded(7), top=3)
    reply = server.post("/v1/predict?top=3", encoded(7))
    assert reply.status == 200, reply.body
    assert (reply.json["model"], len(reply.json["version"])) == ("noise", 12)
    (found,) = reply.json["predictions"]
    assert [row["label"] for row in found["top"]] == [label for label, _ in expected.top]
    assert [row["probability"] for row in found["top"]] == pytest.approx([p for _, p in expected.top], abs=1e-6)
    assert found["novelty"] == pytest.approx(expected.novelty, rel=1e-4)
    assert found["abstain"] is (expected.sure is False or expected.known is False)
