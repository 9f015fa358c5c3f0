"""The entry point: find the command, run it, turn every user error into one line and an exit status."""

import contextlib
import math
import os
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from types import NoneType
from typing import Any

from cyclopts import (
    App,
    CoercionError,
    CycloptsError,
    Group,
    Parameter,
    Token,
    UnknownOptionError,
    UnusedCliTokensError,
    convert,
)
from cyclopts.help import DefaultFormatter
from rich.console import Console
from rich.text import Text

from vitral import __version__, torchrun
from vitral.advice import in_words, printable
from vitral.cli import process
from vitral.cli.commands import COMMANDS, EPILOGUE, GROUPS, MAX_PIXELS, PLUGIN, command_named
from vitral.cli.options import WHOLE
from vitral.cli.slips import instead_of
from vitral.cli.wording import WORDS
from vitral.errors import (
    LESS_MEMORY,
    TRY_AGAIN,
    OutOfMemory,
    PluginError,
    ProcessLost,
    TrainingInterrupted,
    UsageError,
    VitralError,
    did_you_mean,
    is_failed_device,
    is_out_of_memory,
    one_line,
)
from vitral.paths import LIMIT, from_home, look_at

DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", re.IGNORECASE)


def read_option(kind: Any, tokens: Sequence[Token]) -> Any:  # noqa: ANN401  # of any option, as its annotation says
    """Return an option's value from its words; a number is read only where it says what is meant.

    The library's own reading rounds 32.9 to 33, takes 0x20 for 32 and the digits of any script for ours, and "none" for an
    option that was not given.

    Raises:
        CoercionError: A word is no such value.
    """
    return convert(kind, tokens, converter=_value)


def _value(kind: type, word: str) -> Any:  # noqa: ANN401  # of that type
    if kind is int and WHOLE.fullmatch(word):
        return int(word)  # a number of thousands of digits is a ValueError
    if kind is float and DECIMAL.fullmatch(word) and math.isfinite(value := float(word)):
        return value
    if kind in (int, float):
        what = "a whole number, such as 32" if kind is int else "a number, such as 0.95"
        raise CoercionError(msg=f"'{word:.40}' is not {what}.")
    if kind is NoneType:  # one of the types of an option that may be left out
        raise CoercionError
    return convert(kind, [word])


def _shown_default(value: object) -> str | None:
    """Return a default as the help shows it; None for one that is off or empty."""
    return None if value is None or value is False or value == () else str(value)


class Flowing(DefaultFormatter):
    """Draws the help's panels with texts that break where the terminal does, not where their source does."""

    def __call__(self, console: Any, options: Any, panel: Any) -> None:  # noqa: ANN401  # the library's
        """Draw a panel."""
        for entry in panel.entries:
            text = getattr(entry.description, "primary_renderable", None)
            if isinstance(text, Text):
                text.plain = " ".join(text.plain.split())
        super().__call__(console, options, panel)


app = App(
    name="vitral",
    version=f"vitral {__version__}",
    help="The Vision Transformer from the paper to production: pretrain, fine-tune, evaluate, explain.",
    help_epilogue=EPILOGUE,
    help_format="plaintext",
    help_formatter=Flowing(),
    suppress_keyboard_interrupt=False,
    result_action="return_value",
    default_parameter=Parameter(show_default=_shown_default, negative="", converter=read_option),
)
groups = {name: Group(name, sort_key=place) for place, name in enumerate(GROUPS)}
# Named, not imported: a command's own imports (above all torch) wait until it runs.
for position, (command, described) in enumerate(COMMANDS.items()):
    app.command(
        f"vitral.cli.{command}:{command}",
        name=(command, *described.also),
        group=groups[described.group],
        help=described.help(),
        help_epilogue=described.epilogue(),
        sort_key=position,
    )

app.register_install_completion_command(
    help="Install completion of commands and flags for bash, zsh, fish or PowerShell."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status, one of `EXIT_STATUSES`."""
    process.begin(process=arguments is None)
    with in_words(WORDS):
        return _run(arguments)


def _run(arguments: Sequence[str] | None) -> int:
    tokens = list(sys.argv[1:] if arguments is None else arguments)
    try:
        _refuse_empty(tokens)
        with _job(tokens), _environment():
            tokens = arranged(_of_any_command([_from_home(token) for token in tokens]))
            run, arguments_given, _ = app.parse_args(tokens, exit_on_error=False, print_error=False)
            process.restore()  # the imports are done
            run(*arguments_given.args, **arguments_given.kwargs)
        if sys.stdout is not None:  # it is None where nobody is to read it, as under pythonw
            sys.stdout.flush()
    except BaseException as error:
        return _failed(error, tokens)
    return 0


def _failed(error: BaseException, tokens: Sequence[str]) -> int:
    """Say in one line why a command ended, and return its exit status; raise what is a fault of our own."""
    # Of a broken pipe rich makes an exit.
    if isinstance(error, BrokenPipeError) or isinstance(error.__context__, BrokenPipeError):
        # The reader is gone (`vitral models | head`); what is left in the buffer cannot be written.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    if isinstance(error, KeyboardInterrupt):
        number = error.number if isinstance(error, process.Stop) else signal.SIGINT
        return _fail(process.STOPS[signal.Signals(number)], 128 + number)
    if isinstance(error, UnusedCliTokensError):
        more = "' and '".join(error.unused_tokens or ())
        return _fail(f"'{more}' is more than this command takes. 'vitral {tokens[0]} --help' shows what it takes.", 2)
    if isinstance(error, UnknownOptionError) and (instead := _instead(error, tokens)):
        return _fail(instead, 2)
    if isinstance(error, CycloptsError):
        known = tokens and tokens[0] in app
        return _fail(f"{error} 'vitral {tokens[0]} --help' shows the options." if known else str(error), 2)
    if isinstance(error, TrainingInterrupted):
        return _fail(str(error), error.exit_code)
    if isinstance(error, UsageError):
        return _fail(str(error), 2)
    return _fail(_reason(error), TRY_AGAIN if _is_of_the_machine(error) else 1)


def _instead(error: UnknownOptionError, tokens: Sequence[str]) -> str:
    """Return the line on an option that other programs have; empty for any other."""
    option = (error.token.keyword or error.token.value or "").partition("=")[0]
    instead = instead_of(option, tokens, [name for each in error.argument_collection for name in each.names])
    return f"There is no {option}: {instead}. 'vitral {tokens[0]} --help' shows the options." if instead else ""


def _is_of_the_machine(error: BaseException) -> bool:
    """Tell whether the machine failed, so that the same command may succeed another time, or on another machine."""
    return isinstance(error, ProcessLost | OutOfMemory) or is_failed_device(error) or _lacks_memory(error)


def _lacks_memory(error: BaseException) -> bool:
    """Tell whether memory is too short for the command, and no error of ours has said for what."""
    return is_out_of_memory(error) and not (isinstance(error, VitralError) and "memory" in str(error))


def _reason(error: BaseException) -> str:
    """Return what kept a command from its work; raise an error that tells of a fault of our own."""
    if is_failed_device(error):
        return f"The GPU has failed ({one_line(error)}); give the command again, on another machine if it fails again."
    if _lacks_memory(error):
        return f"There is not enough memory for this command; {LESS_MEMORY}."  # a library has words of its own
    if isinstance(error, PluginError):
        return f"{error} A plugin is named by {PLUGIN} FILE.py with any command."
    if isinstance(error, VitralError):
        return str(error)
    if isinstance(error, SystemExit | GeneratorExit):  # no command of ours ends so
        return f"A plugin or a library ended the command before its work was done ({type(error).__name__})."
    if isinstance(error, OSError):
        # The system refused something that no command expected: a name too long, too many open files.
        what = f"'{str(error.filename)[:200]}': " if error.filename else ""
        return f"{what}{error.strerror or error}."
    raise error


def arranged(tokens: list[str]) -> list[str]:
    """Return the words of a command line with the flag that says what its first name would put in that place.

    Raises:
        CycloptsError: There is no such command.
    """
    if not tokens or tokens[0].startswith("-"):
        return tokens
    command = command_named(tokens[0])
    if not command:
        near = did_you_mean(
            tokens[0], [name for each, described in COMMANDS.items() for name in (each, *described.also)]
        )
        raise CycloptsError(msg=f"There is no command '{tokens[0]:.40}'.{near} 'vitral --help' lists them.")
    first, end = COMMANDS[command].first, tokens.index("--") if "--" in tokens else len(tokens)
    for place, token in enumerate(tokens[:end]):
        flag, sign, value = token.partition("=")
        following = [value] if sign else tokens[place + 1 : end][:1]
        if first and flag == first and following and not following[0].startswith("-"):
            return [tokens[0], *following, *tokens[1:place], *tokens[place + (1 if sign else 2) :]]
    return tokens


def _from_home(token: str) -> str:
    """Return an argument with the home folder in place of a ~ that no shell replaces: that of --out=~/new, or in quotes."""
    flag, sign, value = token.partition("=") if token.startswith("--") else ("", "", token)
    return f"{flag}{sign}{from_home(value)}" if re.match(r"~[^/]*/", value) and look_at(value) is None else token


def _refuse_empty(tokens: Sequence[str]) -> None:
    """Refuse an empty argument, which would be taken for the current folder; usually a variable that is not set."""
    for previous, token in zip(["vitral", *tokens], tokens, strict=False):
        flag, sign, value = token.partition("=")
        if not token.strip() or (sign and flag.startswith("--") and not value.strip()):
            name = flag if sign else previous if previous.startswith("--") else "An argument"
            raise CycloptsError(msg=f"{name} is empty; give it a value, or leave it out.")


@contextlib.contextmanager
def _environment() -> Iterator[None]:
    """Leave the environment as it was before the command."""
    before = os.environ.get(LIMIT)
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(LIMIT, None)
        else:
            os.environ[LIMIT] = before


def _of_any_command(tokens: Sequence[str]) -> list[str]:
    """Load the files that --plugin names, set the limit of --max-pixels, and return the other tokens."""
    others, rest = [], iter(tokens)
    for token in rest:
        flag, sign, value = token.partition("=")
        if token == "--":
            others += [token, *rest]
        elif flag not in (PLUGIN, MAX_PIXELS):
            others.append(token)
        elif not (given := value if sign else next(rest, "")):
            raise CycloptsError(msg=f"{flag} needs a {'file' if flag == PLUGIN else 'number of pixels'}.")
        elif flag == MAX_PIXELS:
            if not (given.isascii() and given.isdigit() and int(given)):
                raise CycloptsError(msg=f"{flag} is a whole number of pixels, not '{given}'.")
            os.environ[LIMIT] = given  # which the command's further processes see, too
        else:
            from vitral.plugins import load_plugin  # imports torch, which takes a while

            load_plugin(given)
    return others


@contextlib.contextmanager
def _job(tokens: Sequence[str]) -> Iterator[None]:
    """Join the processes of the job if torchrun started this one; refuse a command that does not share its work out."""
    if torchrun.world() < 2:
        yield
        return
    command = next(filter(None, map(command_named, tokens)), "")
    if command and COMMANDS[command].alone:
        raise VitralError(f"'{command}' works in one process; run it without torchrun.")
    from vitral import distributed  # imports torch, which takes a while

    distributed.join()
    try:
        with distributed.losing_a_process():
            yield
    finally:
        distributed.leave()


def _fail(message: str, status: int) -> int:
    line = printable(" ".join(message.split()))
    with contextlib.suppress(VitralError):  # the line may be about the environment
        line = line if torchrun.is_main() else f"process {torchrun.rank()}: {line}"
    Console(stderr=True).print(f"vitral: {line}", style="red", markup=False, highlight=False, soft_wrap=True)
    return status
