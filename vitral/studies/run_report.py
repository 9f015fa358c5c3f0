"""From a finished run to what its report shows."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from vitral.classifier.classifier import Classifier
from vitral.classifier.find_regions import find_sure
from vitral.data.scorable import marked_photo
from vitral.data.source import Source
from vitral.evaluation.opening import opened_times
from vitral.explanation.explain import Explanation, explain
from vitral.explanation.methods import method_for
from vitral.explanation.network import attention_distance, patch_filters, position_similarity
from vitral.images.decode import Pixels
from vitral.images.drawing import thumbnail
from vitral.images.photo import Photo
from vitral.models.families import count_macs, count_parameters, describe
from vitral.report.results import (
    AttentionImage,
    CaptionedImage,
    Curve,
    CurveGroup,
    PhotoPair,
    PhotoPairs,
    RunReport,
    Verdict,
)
from vitral.studies.speech import PYTHON, Speech
from vitral.tasks.dense_result import DenseResult, ScoredPhoto
from vitral.tasks.drawn_regions import class_colours, drawn_regions, is_ground
from vitral.tasks.regions import FoundRegions
from vitral.tasks.shown import percent
from vitral.tasks.task import Result, classes_of
from vitral.training.candidates.result import RunResult
from vitral.training.records.data_record import redrawn
from vitral.training.records.run_folder import environment
from vitral.training.scoring.diagnosis import merged
from vitral.training.settings.durations import rounded

MISTAKES = 8
EXAMPLES = 8
ALWAYS = 2  # of each, however little time is left: a page without any map does not say where the network looks
SEARCHED = 64  # images among which examples classified right are looked for
DISTANCE_IMAGES = 64  # the paper averaged over 128
FEW = 8  # with a time budget
DRAWING_SECONDS = 1.5  # what is left of a time budget when the last image is chosen: plots and page take it
OF_EACH = 4  # photos
SIDE = 480  # pixels of the longer side
SECONDS = 1.0  # left of a time budget, below which no further photo is drawn
Find = Callable[[Photo], FoundRegions]


def run_report(result: RunResult, *, speech: Speech = PYTHON) -> RunReport:
    """Return everything that a run's page shows, in the words of Python or of another front end."""
    run, split = result.run, result.split
    data = run.data
    source = data.splits[split]
    model, predictor = result.classifier.model, result.classifier.predictor
    evaluation = result.evaluation
    meaningful = not evaluation.at_chance  # otherwise the place where it looked means nothing
    named = data.task.exclusive or data.multi_label  # a right answer is the name of a class
    attentive = predictor.has_attention and meaningful and not data.task.dense
    noun = "Fine-tuned" if run.kind == "fine-tune" else "Pre-trained"
    return RunReport(
        kind="run",
        title=f"{noun} on {data.name}",
        facts=run_facts(result),
        summary=evaluation.sentence(split),
        verdict=tuple(
            Verdict(found.problem, found.reason, speech.ask(found.remedy) if found.remedy else "", failed=found.failed)
            for found in merged(result.diagnosis)
        ),
        command=speech.again(result),
        following=tuple(speech.following(result)),
        notes=(*data.notes, *redrawn(run.folder)),
        plan=run.plan.reasons,
        plan_title=_plan_title(result),
        bad_images=data.bad_images,
        images=(training_images(run.folder, data.name),),
        curves=_curves(result),
        baselines=result.baselines,
        evaluation=evaluation,
        split=split,
        example_images=example_images(source, evaluation),
        mistakes=mistakes(result.classifier, source, evaluation, run.clock.left),
        examples=examples(result.classifier, source, run.clock.left) if meaningful and named else (),
        regions=region_photos(partial(find_sure, result.classifier), source, evaluation, run.clock.left),
        method=method_for(predictor),
        patch_filters=patch_filters(model) if attentive else None,
        position_similarity=position_similarity(model) if attentive else None,
        attention_distance=attention_distance(predictor, first_images(result, source)) if attentive else None,
    )


def run_facts(result: RunResult) -> tuple[tuple[str, str], ...]:
    """Return the facts of a run as pairs of name and value."""
    run, model, data = result.run, result.classifier.model, result.run.data
    counts = ", ".join(
        f"{name} {'endless' if source.endless else f'{len(source):,}'}" for name, source in data.splits.items()
    )
    machine = environment()
    (height, width), macs = model.image_size, count_macs(model.config)
    return (
        ("Network", f"{describe(model.config)}, {count_parameters(model):,} parameters"),
        (
            "Multiply-accumulates",
            f"{f'{macs:,}' if macs < 1e7 else f'{macs / 1e9:.3g} G'} a photo of {height}x{width} pixels",
        ),
        ("Started from", result.classifier.provenance.source),
        ("Data", f"{data.name}: {data.what()}; {counts}"),
        *_making(result),
        *((("None of the classes", limit.sentence()),) if (limit := result.classifier.novelty) is not None else ()),
        ("Time", result.late or f"{rounded(result.seconds)} in all"),
        *opened_times(run.folder),
        ("Machine", f"{machine.get('accelerator', machine['processor'])}, {machine['cores']} cores"),
        ("Versions", f"Python {machine['python']}, torch {machine['torch']}, torchvision {machine['torchvision']}"),
    )


def _making(result: RunResult) -> tuple[tuple[str, str], ...]:
    """Return how the classifier was made, and what else was tried: of a linear layer in closed form no recipe and no steps."""
    recipe, training = result.run.recipe, result.training
    length = f"{training.steps:,} steps, {training.seconds:.0f} s at {training.images_per_second:.0f} images/s"
    choice = tuple(("Choice", line) for line in result.choice_lines())
    if result.trained:
        return (("Recipe", f"{recipe.name}: {recipe.summary()}, seed {recipe.seed}"), *choice, ("Training", length))
    provenance = result.classifier.provenance
    method = str(provenance.training.get("method", ""))
    rejected = (("Also trained", f"a network, which was not selected: {length}"),) if training.steps else ()
    return (("Made by", method), *choice, *rejected)


def _plan_title(result: RunResult) -> str:
    """Return the heading of the plan: of a classifier that was not trained by it the plan tells nothing."""
    if result.trained:
        return "Why it was trained so"
    return (
        "The plan of the network that was not selected"
        if result.training.steps
        else "What was planned, and not trained"
    )


def _curves(result: RunResult) -> tuple[CurveGroup, ...]:
    """Return the curves of the training, under a title that says whether it made the classifier; none where none was."""
    title = "Training" if result.trained else "Training of the network that was not selected"
    return (CurveGroup(title, (Curve(result.run.kind, result.training.history),)),) if result.training.steps else ()


def training_images(folder: Path, data: str) -> CaptionedImage:
    """Return the contact sheet of the training images of the run in a folder."""
    sheet = (folder / "images" / "training.png").read_bytes()
    return CaptionedImage(sheet, f"Training photos of {data}, as training shows them to a network")


def mistakes(
    classifier: Classifier, source: Source, evaluation: Result, left: Callable[[], float]
) -> tuple[AttentionImage, ...]:
    """Return the surest mistakes, each with where the network looked unless it is at chance; fewer where no time is left."""
    shown: list[AttentionImage] = []
    for mistake in evaluation.mistakes[:MISTAKES]:
        if len(shown) >= ALWAYS and left() < DRAWING_SECONDS:
            break
        image, truth, name = source.image(mistake.index), mistake.truth, mistake.description
        if evaluation.at_chance:
            answer = classifier.predict(image)[0]
            shown.append(AttentionImage(image, None, truth, answer.label, answer.probability, name, right=False))
        else:
            shown.append(_explained(explain(classifier, image), truth, name, right=False))
    return tuple(shown)


def _explained(found: Explanation, truth: str, description: str, *, right: bool) -> AttentionImage:
    return AttentionImage(found.image, found.overlay(), truth, found.label, found.probability, description, right)


def example_images(source: Source, evaluation: Result) -> dict[int, Pixels]:
    """Return the images that stand next to the rows of the scores' tables, small, by their position in the split."""
    indices = {index for table in evaluation.tables() for row in table.examples for index in row}
    return {index: thumbnail(source.image(index)) for index in sorted(indices)}


def examples(classifier: Classifier, source: Source, left: Callable[[], float]) -> tuple[AttentionImage, ...]:
    """Return images classified right, spread over the split, each with where the network looked; fewer without time."""
    shown: list[AttentionImage] = []
    count = len(source)
    for index in range(0, count, max(1, count // SEARCHED)):
        if len(shown) == EXAMPLES or (len(shown) >= ALWAYS and left() < DRAWING_SECONDS):
            break
        explanation = explain(classifier, source.image(index))
        names = [classifier.class_names[number] for number in classes_of(source.label(index))]
        if explanation.label in names:
            shown.append(_explained(explanation, ", ".join(names), source.describe(index), right=True))
    return tuple(shown)


def first_images(result: RunResult, source: Source) -> torch.Tensor:
    """Return some prepared images of a split."""
    clock = result.run.clock
    count = min(DISTANCE_IMAGES if clock.seconds is None else FEW, len(source))
    return torch.stack([result.classifier.preprocessing(source.image(index)) for index in range(count)])


def region_photos(find: Find, source: Source, result: Result, left: Callable[[], float]) -> PhotoPairs | None:
    """Return the worst, the most doubtful and the best photos of a result, fewer without time; None without regions."""
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
