"""`vitral distill`: a small network that answers as a large one does."""

from vitral.cli.process import began, importing
from vitral.cli.training_options import DistillOptions, Json
from vitral.torchrun import is_main


def distill(teacher: str, /, options: DistillOptions | None = None, *, json: Json = False) -> None:
    """Train a small network to answer as a large classifier does, on images that need no labels.

    Args:
        teacher: a classifier folder, run folder, weights file, published weights by name, or Hub id.
        options: The request.
        json: print JSON for programs.
    """
    with importing():
        from vitral.cli.console import ConsoleListener, print_json, print_result
        from vitral.cli.training import announce, result_json, write_run_report
        from vitral.studies.distill import distill_request

    request = (options or DistillOptions()).request()
    with ConsoleListener() as listener:
        distilled = distill_request(teacher, request, started=began(), listener=listener)
        if not is_main():
            return  # the main process of the job prints it
        report = write_run_report(distilled.result, listener=listener)
    if json:
        print_json({**result_json(distilled.result.at_its_end(), report), "distilled": distilled.to_json()})
        return
    announce(distilled.result, report, json=False)
    print_result(distilled, json=False)
