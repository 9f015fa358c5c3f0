"""Images in batches: in order, each once, and no more in memory than a batch."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from tests.cases import every_case
from vitral.data.generated import open_digits
from vitral.data.subset import Subset
from vitral.errors import DataError, ModelError
from vitral.events import Event, Progress, ignore
from vitral.images.preprocessing import Preprocessing
from vitral.inference.predictor import collect, in_batches

SMALL = Preprocessing(image_size=(8, 8))


@every_case(("batch_size", "sizes"), [(1, 7 * [1]), (3, [3, 3, 1]), (7, [7]), (100, [7])])
def test_batches_hold_every_image_in_order(batch_size: int, sizes: list[int]) -> None:
    named = [(f"image {index}", torch.full((3, 2, 2), float(index))) for index in range(7)]
    batches = list(in_batches(named, batch_size))
    assert [len(names) for names, _ in batches] == sizes
    assert [name for names, _ in batches for name in names] == [name for name, _ in named]
    assert torch.equal(
        torch.stack([image for _, images in batches for image in images]), torch.stack([image for _, image in named])
    )


def test_no_image_is_read_before_its_batch_is_asked_for() -> None:
    read: list[int] = []

    def endless() -> Iterator[tuple[str, Tensor]]:
        while True:
            read.append(len(read))
            yield str(read[-1]), torch.zeros(3, 2, 2)

    batches = in_batches(endless(), 4)
    next(batches)
    assert len(read) == 4


@every_case("batch_size", [0, -2])
def test_an_empty_batch_is_refused_rather_than_no_prediction_given(batch_size: int) -> None:
    with pytest.raises(ModelError, match=f"not {batch_size}; set batch_size"):
        next(in_batches([("one", torch.zeros(3, 2, 2))], batch_size))
    source = open_digits().splits["validation"]
    with pytest.raises(ModelError, match=f"not {batch_size}; set batch_size"):
        collect(means, source, SMALL, batch_size=batch_size, workers=0, limit=None, purpose="look", listener=ignore)


def means(images: Tensor) -> Tensor:
    """Stand for a network: one value an image."""
    return images.mean(dim=(1, 2, 3))[:, None]


@every_case("batch_size", [1, 7, 1000])
def test_every_image_of_a_source_has_its_own_row(batch_size: int) -> None:
    source = Subset(open_digits().splits["validation"], range(3, 30))
    events: list[Event] = []
    rows, labels = collect(
        means, source, SMALL, batch_size=batch_size, workers=0, limit=None, purpose="look", listener=events.append
    )
    expected = torch.cat([means(SMALL(source.image(index))[None]) for index in range(27)])
    torch.testing.assert_close(rows, expected)
    assert labels.tolist() == source.labels().tolist()
    assert events == [Progress("look", min(27, end), 27) for end in range(batch_size, 27 + batch_size, batch_size)]


def test_a_source_without_images_is_refused() -> None:
    empty = Subset(open_digits().splits["validation"], [])
    with pytest.raises(DataError, match="no images"):
        collect(means, empty, SMALL, batch_size=4, workers=0, limit=None, purpose="look", listener=ignore)
