"""`vitral distill`: a small network that answers as a large one does."""

from pathlib import Path

from vitral.cli.options import Count, Positive, Settings, SkipBad
from vitral.cli.process import began, importing
from vitral.data.classes import Reading
from vitral.torchrun import is_main


def distill(
    teacher: str,
    /,
    data: str | None = None,
    *,
    student: str | None = None,
    out: Path | None = None,
    recipe: str | None = None,
    overrides: Settings = (),
    image_size: Positive | None = None,
    time: str | None = None,
    seed: Count | None = None,
    classes: Reading | None = None,
    group: str | None = None,
    skip_bad_images: SkipBad = None,
    resume: bool = False,
    data_changed: bool = False,
    overwrite: bool = False,
    json: bool = False,
) -> None:
    """Train a small network to answer as a large classifier does, on images that need no labels.

    Args:
        teacher: a classifier folder, run folder, weights file, published weights by name, or Hub id.
        data: the images: what 'finetune' takes, or a folder of images in whatever sub-folders.
        student: a model's name ('vitral models' lists them), or trained weights; vit-ti16 if left out.
        out: the run folder; runs/NAME if left out.
        recipe: a recipe's name or a TOML file; distill if left out.
        overrides: KEY=VALUE changes to the recipe, such as method.answers=0; may be repeated.
        image_size: the size of the student's images in pixels; the teacher's if left out and the student can take it.
        time: a budget such as 10m, 90s or 8h for training, scores and report; scoring the teacher, too, comes on top.
        seed: the seed of every random choice.
        classes: the part of the path that names the class in nested folders: the innermost, the outermost or the whole path;
            detected if left out.
        group: what tells images that belong together, as for 'finetune'.
        skip_bad_images: train without however many images cannot be read, or stop at any (--strict); a few are left out and
            named if neither is given.
        resume: continue with the run in --out, to the same bits.
        data_changed: continue although the data have changed since the run began, and note that.
        overwrite: start in --out although it holds a run, which is deleted, or other files; those of the same names are lost.
        json: print JSON for programs.
    """
    with importing():
        from vitral.cli.console import ConsoleListener, print_json, print_result
        from vitral.cli.training import announce, result_json, write_run_report
        from vitral.studies.distill import distill as train

    with ConsoleListener() as listener:
        distilled = train(
            teacher,
            data,
            student=student,
            out=out,
            recipe=recipe,
            overrides=overrides,
            image_size=image_size,
            time=time,
            seed=seed,
            classes=classes,
            group=group,
            skip_bad_images=skip_bad_images,
            resume=resume,
            overwrite=overwrite,
            data_changed=data_changed,
            started=began(),
            listener=listener,
        )
        if not is_main():
            return  # the main process of the job prints it
        report = write_run_report(distilled.result, listener=listener)
    if json:
        print_json({**result_json(distilled.result.at_its_end(), report), "distilled": distilled.to_json()})
        return
    announce(distilled.result, report, json=False)
    print_result(distilled, json=False)
