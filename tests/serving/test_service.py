"""Back-pressure: what could not be answered in time is refused at once, with when to come again."""

import time
from collections.abc import Iterator

import numpy as np
import pytest
import torch

import vitral
from tests.conftest import TINY
from vitral.images.preprocessing import PHOTOS
from vitral.models.families import build
from vitral.serving.limits import HELD_BYTES, Limits
from vitral.serving.measures import Measures
from vitral.serving.refusals import RequestRefused
from vitral.serving.service import CAUTION, Service

SOON = 60.0


@pytest.fixture
def service() -> Iterator[Service]:
    made = Service(Limits(), Measures())
    made.load("tiny", vitral.Classifier(build(TINY, seed=0), PHOTOS.with_size(16), ("a", "b", "c")))
    yield made
    made.end()


def refused(service: Service, count: int, seconds: float) -> RequestRefused | None:
    try:
        service.admit(service.model(None).answers, count, time.monotonic() + seconds)
    except RequestRefused as refusal:
        return refusal
    return None


def test_a_request_that_would_wait_too_long_is_told_when_to_come_again(service: Service) -> None:
    served = service.model(None)
    prepared = torch.zeros(3, 16, 16)
    held = service.put(served.others, lambda: time.sleep(0.5), time.monotonic() + SOON, [])
    several = [service.submit(served, served.answers, prepared, time.monotonic() + SOON, []) for _ in range(10)]
    served.answers.seconds, served.answers.most = 1.0, 1  # as of a large network
    assert service.waiting == 11
    assert service.wait_seconds() == pytest.approx(10, rel=0.2)
    assert refused(service, 1, seconds=30) is None
    refusal = refused(service, 1, seconds=4)
    assert refusal is not None
    assert refusal.status == 503
    assert refusal.retry_after == pytest.approx(CAUTION * (10 + 1) - 4, abs=1)
    assert refused(service, service.room + 1, seconds=30).status == 503  # type: ignore[union-attr]
    gone = refused(service, 1, seconds=0)
    assert gone is not None
    assert gone.status == 504
    for one in several[:5]:
        one.cancel()  # who leaves makes room
    assert service.wait_seconds() == pytest.approx(5, rel=0.2)
    held.result(SOON)
    assert len([one.result(SOON) for one in several[5:]]) == 5
    assert service.waiting == 0


def test_bodies_are_held_up_to_a_limit(service: Service) -> None:
    service.hold(HELD_BYTES)
    with pytest.raises(RequestRefused):
        service.hold(1)
    service.release(HELD_BYTES)
    service.hold(1)


def test_an_image_that_cannot_be_prepared_spoils_no_other(service: Service) -> None:
    served = service.model(None)
    until = time.monotonic() + SOON
    given = (b"hello", np.zeros((4, 4, 7), np.uint8), np.full((8, 8, 3), 9, np.uint8))
    text, odd, sound = (service.submit(served, served.answers, image, until, []) for image in given)
    assert text.exception(SOON)
    assert odd.exception(SOON)
    assert float(sound.result(SOON)[0].sum()) == pytest.approx(1)
    assert service.waiting == 0


def test_an_image_without_a_number_spoils_no_other(service: Service) -> None:
    served = service.model(None)
    nothing = torch.full((3, 16, 16), torch.nan)
    until = time.monotonic() + SOON
    broken, sound = (
        service.submit(served, served.answers, image, until, []) for image in (nothing, torch.zeros(3, 16, 16))
    )
    assert isinstance(broken.result(SOON), RequestRefused)
    assert float(sound.result(SOON)[0].sum()) == pytest.approx(1)
