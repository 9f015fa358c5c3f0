"""Python on Linux, without what Windows lacks and with what it refuses, as far as a program notices.

`pretend` is called as the interpreter starts, by a `sitecustomize`, so that worker processes are limited, too. Not pretended
are separators and reserved names in paths, and libraries' own files for Windows.
"""

import builtins
import errno
import fcntl
import io
import multiprocessing
import os
import shutil
import signal
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

# Imported before anything is taken away: these choose what they do by `sys.platform`, which stays as it is.
from torch.utils.data._utils import signal_handling

MODULES = ("fcntl", "resource", "termios", "tty", "pty", "pwd", "grp", "syslog")
CALLS = (
    *("fork", "forkpty", "pread", "preadv", "pwrite", "pwritev", "killpg", "sysconf", "sched_getaffinity", "setsid"),
    *("getpgid", "mkfifo", "getuid", "geteuid", "nice", "chown", "lchown", "register_at_fork"),
    *("O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW"),
)
SIGNALS = ("SIGHUP", "SIGKILL", "SIGCHLD", "SIGALRM", "SIGUSR1", "alarm", "setitimer", "pthread_kill")
PRIVILEGE_NOT_HELD = "A required privilege is not held by the client"
SYNCHRONIZE = 0x100000
WAIT_TIMEOUT = 258

_open, _fsync, _kill, _readlink = os.open, os.fsync, os.kill, os.readlink


def pretend() -> None:
    """Take away what Windows lacks."""
    sys.modules |= {"msvcrt": _msvcrt(), "_winapi": _winapi()}
    sys.modules |= dict.fromkeys(MODULES)  # type: ignore[arg-type]  # an import of such a module fails
    for owner, names in ((os, CALLS), (signal, SIGNALS)):
        for name in names:
            vars(owner).pop(name, None)
    signal_handling._set_SIGCHLD_handler = lambda: None  # as torch does there
    shutil._use_fd_functions = False  # type: ignore[attr-defined]
    multiprocessing.set_start_method("spawn", force=True)
    _limit_files()


def _limit_files() -> None:
    changed: dict[str, Callable[..., Any]] = {
        "symlink": _refused(OSError(errno.EPERM, PRIVILEGE_NOT_HELD)),
        "open": _opened,
        "fsync": _flushed,
        "kill": _killed,
        "utime": _not_of_a_descriptor(os.utime),
        **{name: _of_closed_files(getattr(os, name), name) for name in ("unlink", "remove", "rename", "replace")},
        **{name: _without_proc(getattr(os, name)) for name in ("stat", "readlink", "listdir", "scandir")},
    }
    for name, call in changed.items():
        setattr(os, name, call)
    os.supports_fd.clear()
    builtins.open = io.open = _without_proc(io.open)


def _refused(error: OSError) -> Callable[..., NoReturn]:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise error

    return refuse


def _is_of_the_system(path: object) -> bool:
    return isinstance(path, str | os.PathLike) and os.fspath(path).startswith("/proc")


def _without_proc(call: Callable[..., Any]) -> Callable[..., Any]:
    def limited(path: Any = ".", *arguments: Any, **options: Any) -> Any:  # noqa: ANN401  # the call's own
        if _is_of_the_system(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return call(path, *arguments, **options)

    return limited


def _opened(path: Any, flags: int, *arguments: Any, **options: Any) -> int:  # noqa: ANN401  # as of `os.open`
    if _is_of_the_system(path):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    if os.path.isdir(path):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
    return _open(path, flags, *arguments, **options)


def _flushed(file: Any) -> None:  # noqa: ANN401  # a descriptor or a file
    number = file if isinstance(file, int) else file.fileno()
    if fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    _fsync(number)


def _killed(pid: int, number: int) -> None:
    assert number != 0, "it would press Ctrl-C in the other process"
    _kill(pid, number)


def _not_of_a_descriptor(call: Callable[..., Any]) -> Callable[..., Any]:
    def limited(path: Any, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401  # the call's own
        if isinstance(path, int):
            raise TypeError("utime: path should be string, bytes or os.PathLike, not int")
        return call(path, *arguments, **options)

    return limited


def _of_closed_files(call: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return the call for files that nothing in this process has open: others are not removed, renamed or replaced there."""

    def limited(path: Any, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401  # the call's own
        named = [path, *arguments[:1]] if name in ("rename", "replace") else [path]
        for each in named:
            _refuse_open(os.path.realpath(os.fspath(each)))
        if name == "rename" and os.path.lexists(named[1]):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), named[1])
        return call(path, *arguments, **options)

    return limited


def _refuse_open(path: str) -> None:
    for held in _held():
        if held == path or held.startswith(f"{path}/"):
            raise PermissionError(errno.EACCES, f"The process cannot access the file: '{held}' is open", path)


def _held() -> set[str]:
    """Return the files that this process has open or mapped."""
    held = set()
    for number in range(3, 256):
        try:
            held.add(_readlink(f"/proc/self/fd/{number}"))
        except OSError:
            continue
    maps = _open("/proc/self/maps", os.O_RDONLY)
    with os.fdopen(maps, encoding="utf-8", errors="surrogateescape") as lines:
        held |= {line.split(maxsplit=5)[5].rstrip() for line in lines if "/" in line}
    return held


def _msvcrt() -> types.ModuleType:
    module: Any = types.ModuleType("msvcrt")
    module.LK_NBLCK = 2

    def locking(descriptor: int, mode: int, count: int) -> None:
        assert mode == module.LK_NBLCK
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, count, 0, os.SEEK_CUR)

    module.locking = locking
    return module


def _winapi() -> types.ModuleType:
    module: Any = types.ModuleType("_winapi")
    module.SYNCHRONIZE = SYNCHRONIZE
    module.WAIT_TIMEOUT = WAIT_TIMEOUT

    def open_process(access: int, inherit: bool, pid: int) -> int:
        assert (access, inherit) == (SYNCHRONIZE, False)
        try:
            _kill(pid, 0)
        except ProcessLookupError as error:
            raise OSError(errno.EINVAL, "The parameter is incorrect") from error
        return pid

    module.OpenProcess = open_process
    module.WaitForSingleObject = lambda handle, milliseconds: WAIT_TIMEOUT
    module.CloseHandle = lambda handle: None
    return module


def as_on_windows(folder: Path) -> dict[str, str]:
    """Return the environment of a Python without what Windows lacks, by a file that is put into a folder."""
    (folder / "sitecustomize.py").write_text("from tests.portable.windows import pretend\n\npretend()\n")
    project = Path(__file__).parents[2]
    paths = [str(folder), str(project), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONIOENCODING": "cp1252"}
