"""The photos of a split that a report shows with what is marked in them, and with what a classifier finds."""

from collections.abc import Callable

from vitral.data.scorable import marked_photo
from vitral.data.source import Source
from vitral.images.drawing import thumbnail
from vitral.images.photo import Photo
from vitral.report.results import PhotoPair, PhotoPairs
from vitral.tasks.dense_result import DenseResult, ScoredPhoto
from vitral.tasks.drawn_regions import class_colours, drawn_regions, is_ground
from vitral.tasks.regions import FoundRegions
from vitral.tasks.shown import percent
from vitral.tasks.task import Result

OF_EACH = 4  # photos
SIDE = 480  # pixels of the longer side
SECONDS = 1.0  # left of a time budget, below which no further photo is drawn
Find = Callable[[Photo], FoundRegions]


def region_photos(find: Find, source: Source, result: Result, left: Callable[[], float]) -> PhotoPairs | None:
    """Return the worst, the most doubtful and the best photos of a result; None of a result without regions.

    Args:
        find: What finds the regions of a photo.
        source: The split.
        result: Its scores.
        left: Seconds that are left; fewer photos are drawn where few are.
    """
    if not isinstance(result, DenseResult):
        return None
    ranked = (
        ("The worst photos", result.worst, f"{result.figure.title} {{}}"),
        ("The most doubtful photos", result.doubtful, "sure to {}"),
        ("The best photos", result.best, f"{result.figure.title} {{}}"),
    )
    groups, seen = [], set[int]()
    for title, photos, text in ranked:
        drawn = []
        for photo in photos[:OF_EACH]:
            if left() < SECONDS:
                break
            drawn.append(_drawn(find, source, result, photo, text, seen))
        groups += [(title, tuple(drawn))] if drawn else []
    colours = class_colours(len(result.class_names)).tolist()
    named = enumerate(result.class_names)
    classes = tuple((name, tuple(colours[number])) for number, name in named if number in seen and not is_ground(name))
    return PhotoPairs(tuple(groups), classes) if groups else None


def _drawn(find: Find, source: Source, result: DenseResult, photo: ScoredPhoto, text: str, seen: set[int]) -> PhotoPair:
    """Return a photo as it is shown; the classes in it are added to those that were seen."""
    image, truth = marked_photo(source, photo.index)
    found = find(image).regions
    seen |= {*truth.classes.tolist(), *found.classes.tolist()}
    marked, answered = (
        thumbnail(drawn_regions(image.pixels, regions, result.class_names, counted=False, legend=False), SIDE)
        for regions in (truth, found)
    )
    return PhotoPair(marked, answered, text.format(percent(photo.figure)), photo.note, photo.description)
