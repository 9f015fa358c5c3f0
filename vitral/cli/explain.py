"""`vitral explain`: where did the model look?"""

import dataclasses
import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cyclopts import CycloptsError

from vitral.advice import counted
from vitral.cli.console import ConsoleListener, print_json, print_lines
from vitral.cli.process import importing
from vitral.cli.wording import flag
from vitral.errors import ImageError
from vitral.outputs import check_file, has_mark
from vitral.paths import look_at, nearest_path

if TYPE_CHECKING:
    from vitral.data.image_files import LazyImage
    from vitral.explanation.explain import Explanation
    from vitral.explanation.gallery import GallerySettings

Choice = Literal["auto", "rollout", "attention", "relevance", "grad-cam"]
Style = Literal["side", "overlay", "heat"]
LONGEST_STEM = 60  # characters of the image's name in that of the drawing


@dataclasses.dataclass(frozen=True)
class Places:
    """What a command reads and where it writes, as the user named them."""

    classifier: str | None
    data: str | None
    out: Path | None
    overwrite: bool
    json: bool

    def inputs(self, *others: str) -> list[str]:
        """Return what must not be overwritten."""
        return [name for name in (*others, self.classifier, self.data) if name]


def explain(
    images: str | None = None,
    /,
    *,
    classifier: str | None = None,
    method: Choice = "auto",
    label: str | None = None,
    layer: int | None = None,
    head: int | None = None,
    data: str | None = None,
    worst_first: bool = False,
    faithful: bool = False,
    network: bool = False,
    report: Path | None = None,
    out: Path | None = None,
    style: Style = "side",
    overwrite: bool = False,
    json: bool = False,
) -> None:
    """Show where the model looked in a photo, or how its network sees.

    Args:
        images: A file, to make a drawing; or a folder, .zip, .tar or table, to make a page.
        classifier: A classifier folder, run folder, weights file or name, or Hub id; the newest run in runs/ if left out.
        method: "relevance", the attention that speaks for the class; "grad-cam", what of the last feature map does; "rollout",
            all attention from the image to the answer; "attention", that of one layer; "auto", the one that fits the model.
        label: The class to explain, by its name; the most probable if left out.
        layer: The layer whose attention is shown, counted from 1; the last if left out.
        head: The head of that layer, counted from 1; the mean of all if left out.
        data: The training images, as 'finetune' takes them, to show the nearest of them; with --network the images to average
            over.
        worst_first: Begin with the images of a folder that got least probability for their class, which their folder names.
        faithful: Measure how faithful each map is, by deletion and insertion: 33 passes an image.
        network: Show the network itself: patch filters, position embeddings, attention distances.
        report: The page of several images, its name ending in .html; FOLDER-explained.html if left out.
        out: The drawing, its name ending in .png, .jpg or .webp; IMAGE-explained.jpg in this folder if left out, or
            IMAGE-explained-2.jpg and so on if that is of another image. Of the network a folder, NAME-network.
        style: "side", image and map side by side; "overlay", the map over the image; "heat", the map alone.
        overwrite: Replace a file even if it is not such a drawing.
        json: Print JSON for programs, including the relevance map.
    """
    with importing():
        from vitral.data.image_stream import list_unlabelled
        from vitral.explanation.gallery import GallerySettings

    if report is not None and (network or out is not None):
        raise CycloptsError(msg="--report names a page of several images; give it alone, without --out and --network.")
    places, request = (
        Places(classifier, data, report or out, overwrite, json),
        GallerySettings(method, label, layer, head),
    )
    if network == (images is not None):
        raise CycloptsError(msg="Name an image or a folder to explain, or the network by --network: one of the two.")
    if images is None:
        given = {"method": request != GallerySettings(), "style": style != "side", "worst_first": worst_first}
        _refuse("the network", **given, faithful=faithful)
        _analyze(places)
        return
    request = dataclasses.replace(request, score=faithful)
    listed = list_unlabelled(images, ConsoleListener())
    if len(listed) == 1 and listed[0].name == images:
        _refuse("a single image", worst_first=worst_first, report=report is not None)
        _draw(images, request, places, style)
    else:
        _refuse("a page of several images", style=style != "side")
        _exhibit(images, listed, request, places, worst_first=worst_first)


def _refuse(what: str, **given: bool) -> None:
    """Refuse a flag that changes nothing of what is shown."""
    for name in (name for name, is_given in given.items() if is_given):
        flags = "--method, --label, --layer or --head" if name == "method" else flag(name)
        raise CycloptsError(msg=f"{flags} says nothing of {what}; leave it out.")


def _draw(image: str, request: "GallerySettings", places: Places, style: Style) -> None:
    """Explain one image in a drawing."""
    with importing():
        from vitral.cli.chosen import choose
        from vitral.explanation.explain import MARK
        from vitral.explanation.explain import explain as explain_image
        from vitral.explanation.nearest import TrainingImages
        from vitral.images.drawing import image_format

    if look_at(image) is None:
        raise ImageError(f"There is no image '{image}'.{nearest_path(image)}")
    target = places.out or Path(f"{Path(image).stem[:LONGEST_STEM]}-explained.jpg")
    check_file(target, inputs=places.inputs(image), mark=MARK, overwrite=places.overwrite)
    image_format(target)  # a name that cannot be written is refused before anything is computed
    with ConsoleListener() as listener:
        _, source = choose(places.classifier, listener)
        training = None if places.data is None else TrainingImages.of(source, places.data, listener=listener)
        request = dataclasses.replace(request, training=training)
        explanation = explain_image(source, Path(image), **vars(request), listener=listener)
    if places.out is None:
        target = _own_name(target, explanation.mark)
    explanation.save(target, style=style, overwrite=places.overwrite)
    if places.json:
        print_json({"source": image, "drawing": str(target), **explanation.to_json()})
    else:
        _show(explanation, image, target)


def _show(explanation: "Explanation", image: str, target: Path) -> None:
    because = f" ({explanation.reason})" if explanation.reason else ""
    scores = explanation.faithfulness
    faithful = "" if scores is None else f", deletion {scores.deletion:.3f}, insertion {scores.insertion:.3f},"
    if explanation.nearest:
        print_lines(f"Nearest {explanation.nearest_of}:")
    for neighbour in explanation.nearest:
        print_lines(f"{neighbour.similarity:.3f} alike: {neighbour.label}, {neighbour.name}")
    print_lines(f"{image}: {explanation.headline}; {explanation.described}{because}{faithful} in {target}")
    if explanation.unscored:
        print_lines(f"{explanation.unscored[0].upper()}{explanation.unscored[1:]}.")


def _exhibit(
    folder: str, listed: "list[LazyImage]", request: "GallerySettings", places: Places, *, worst_first: bool
) -> None:
    """Explain many images on a page."""
    with importing():
        from vitral.cli.chosen import choose
        from vitral.explanation.gallery import explain_all
        from vitral.explanation.nearest import TrainingImages
        from vitral.report.pages import write_gallery
        from vitral.report.template import mark

    target = places.out or Path(f"{Path(folder).resolve().stem[:LONGEST_STEM]}-explained.html")
    if target.suffix.lower() not in (".html", ".htm"):
        raise ImageError(f"'{target}' is no name for a page of several images; let it end in .html.")
    check_file(target, inputs=places.inputs(folder), mark=mark("gallery"), overwrite=places.overwrite)
    with ConsoleListener() as listener:
        name, source = choose(places.classifier, listener)
        if places.data is not None:
            request = dataclasses.replace(request, training=TrainingImages.of(source, places.data, listener=listener))
        gallery = explain_all(source, listed, request, worst_first=worst_first, listener=listener)
    write_gallery(gallery, target, title=folder, classifier=name, overwrite=places.overwrite)
    if places.json:
        print_json(
            {
                "page": str(target),
                "num_images": gallery.num_images,
                "images": [entry.to_json() for entry in gallery.entries],
            }
        )
        return
    scores = gallery.faithfulness()
    faithful = "" if scores is None else f", mean deletion {scores[0]:.3f}, mean insertion {scores[1]:.3f},"
    if scores is not None and gallery.num_scored < len(gallery.entries):
        faithful += f" of the {gallery.num_scored:,} maps of more than one value,"
    count = f"{len(gallery.entries):,} of {counted(gallery.num_images, 'photo')}"
    print_lines(f"{folder}: {count}; {gallery.entries[0].explanation.described}{faithful} in {target}")


def _analyze(places: Places) -> None:
    """Write the analysis of the network."""
    with importing():
        from vitral.cli.chosen import choose
        from vitral.explanation.network import analyze
        from vitral.report.pages import check_network, reach, write_network

    with ConsoleListener() as listener:
        name, source = choose(places.classifier, listener)
        target = places.out or Path(f"{Path(name).resolve().name[:LONGEST_STEM]}-network")
        check_network(target, inputs=places.inputs(name), overwrite=places.overwrite)
        analysis = analyze(source, places.data, listener=listener)
    write_network(analysis, target, classifier=name, overwrite=places.overwrite)
    if places.json:
        print_json({"folder": str(target), **analysis.to_json()})
        return
    distance = analysis.attention_distance
    reached = "" if distance is None else f": {reach(distance)}, averaged over {counted(distance.num_images, 'photo')}"
    summary = f"{analysis.network}{reached}; page, drawings and arrays in {target}"
    print_lines(*analysis.missing, summary)


def _own_name(target: Path, mark: bytes) -> Path:
    """Return the name, or the first with a number, that is free or has the drawing of the same image."""
    numbered = (target.with_stem(f"{target.stem}-{number}") for number in itertools.count(2))
    names = itertools.chain([target], numbered)
    return next(name for name in names if not name.exists() or has_mark(name, mark))
