"""The entry point: find the command, run it, turn every error of the user's into one line and a status."""

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence

from cyclopts import App, CycloptsError, Parameter
from rich.console import Console

from vitral import __version__
from vitral.cli import interrupts, started
from vitral.cli.commands import COMMANDS, EPILOGUE, PLUGIN
from vitral.cli.wording import spoken
from vitral.errors import PluginError, TrainingInterrupted, VitralError
from vitral.printable import printable


def _shown_default(value: object) -> str | None:
    """Return what the help says of a default: nothing of what is off, or left out."""
    return None if value is None or value is False or value == () else str(value)


app = App(
    name="vitral",
    version=f"vitral {__version__}",
    help="The Vision Transformer from the paper to production: pretrain, fine-tune, evaluate, explain.",
    help_epilogue=EPILOGUE,
    help_format="plaintext",
    suppress_keyboard_interrupt=False,
    result_action="return_value",
    default_parameter=Parameter(show_default=_shown_default),
)
# Named, not imported: a command's own imports (torch, above all) wait until it is the one to run.
for place, (command, shown) in enumerate(COMMANDS.items()):
    app.command(
        f"vitral.cli.{command}:{command}",
        name=command,
        help=shown.help(),
        help_epilogue=shown.epilogue(),
        sort_key=place,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0 done, 1 the user's input, 2 the command line, 128+n signal n."""
    started.begin(process=arguments is None)
    tokens = list(sys.argv[1:] if arguments is None else arguments)
    try:
        _refuse_empty(tokens)
        with _job():
            tokens = _load_plugins(tokens)
            run, given, _ = app.parse_args(tokens, exit_on_error=False, print_error=False)
            interrupts.as_ever()  # what had to be imported is
            run(*given.args, **given.kwargs)
        sys.stdout.flush()
    except CycloptsError as error:
        command = f" {tokens[0]}" if tokens and tokens[0] in app else ""
        return _fail(f"{error} 'vitral{command} --help' shows what there is.", 2)
    except TrainingInterrupted as interruption:
        return _fail(str(interruption), interruption.exit_code)
    except PluginError as error:
        return _fail(f"{error} A plugin is named by {PLUGIN} FILE.py with any command.", 1)
    except VitralError as error:
        return _fail(str(error), 1)
    except KeyboardInterrupt:
        return _fail("Interrupted.", 130)
    except BrokenPipeError:
        # The reader went away (`vitral models | head`); what is left in the buffer has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        # The system refuses something that no command foresaw: a name too long, too many open files.
        what = f"'{str(error.filename)[:200]}': " if error.filename else ""
        return _fail(f"{what}{error.strerror or error}.", 1)
    return 0


def _refuse_empty(tokens: Sequence[str]) -> None:
    """Refuse an argument of nothing, which would be taken for the present folder: mostly a variable that is not set.

    Raises:
        CycloptsError: there is one.
    """
    for before, token in zip(["vitral", *tokens], tokens, strict=False):
        flag, sign, value = token.partition("=")
        if not token.strip() or (sign and flag.startswith("--") and not value.strip()):
            name = flag if sign else before if before.startswith("--") else "An argument"
            raise CycloptsError(msg=f"{name} is empty; give it a value, or leave it out.")


def _load_plugins(tokens: Sequence[str]) -> list[str]:
    """Load the files that --plugin names, whatever the command, and return the other tokens.

    Raises:
        PluginError: one cannot be loaded.
        CycloptsError: no file is named.
    """
    left, files = [], []
    rest = iter(tokens)
    for token in rest:
        flag, sign, value = token.partition("=")
        if token == "--":
            left += [token, *rest]
        elif flag != PLUGIN:
            left.append(token)
        elif file := value if sign else next(rest, ""):
            files.append(file)
        else:
            raise CycloptsError(msg=f"{PLUGIN} needs a file.")
    if files:
        from vitral.plugins import load_plugin  # what a plugin imports, torch above all, is for those who have one

        for file in files:
            load_plugin(file)
    return left


@contextlib.contextmanager
def _job() -> Iterator[None]:
    """Be one of the processes that torchrun started, if it did."""
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        yield
        return
    from vitral import distributed  # torch's start-up time is for those who need it

    distributed.join()
    try:
        with distributed.losing_a_process():
            yield
    finally:
        distributed.leave()


def _fail(message: str, status: int) -> int:
    line = printable(" ".join(spoken(message).split()))
    if os.environ.get("RANK", "0") != "0":
        line = f"process {os.environ['RANK']}: {line}"
    Console(stderr=True).print(f"vitral: {line}", style="red", markup=False, highlight=False, soft_wrap=True)
    return status
