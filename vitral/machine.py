"""The properties of this machine that decide how to compute, and small work on many items by its threads."""

import contextlib
import ctypes
import functools
import mmap
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

# Numbers of glibc's mallopt.
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
BLOCK_LIMIT = 1 << 30  # bytes; the largest value of either threshold on every platform
STATUS = Path("/proc/self/status")
CLEAR = Path("/proc/self/clear_refs")
MEMORY_FILE = Path("/proc/meminfo")
CONTROL_GROUP = Path("/sys/fs/cgroup")  # of a container, where Linux says it
UNKNOWN_BYTES = 8 << 30  # of a machine that does not say how much memory it has
FORGET_PEAK = "5"  # written to CLEAR, it resets the peak (proc(5))
PRODUCT_SIZE = 4096  # rows and columns of the products that measure a machine
PROBED = 64  # rows and columns of a product that only shows whether the machine is able to
PRODUCTS = 3  # timed at least; the fastest counts


Result = TypeVar("Result")
Item = TypeVar("Item")

AT_ONCE = 32  # items that a thread takes at most: handing over each one would take longer than reading a small image
FEWEST = 3  # items that tell how long one takes, of which the first may load libraries
# Shorter work is mostly Python's own, which one thread at a time does: images of 32 pixels take two threads twice as long.
THREAD_BYTES = 16 << 20  # address space that a thread takes to begin: its stack, and what the allocator reserves
WORTHWHILE_SECONDS = 3e-4


def vitral_version() -> str:
    """Return Vitral's version, in rooms that would make a cycle of imports by it: the package itself names what is in them."""
    return str(sys.modules["vitral"].__version__)


def processor_name() -> str:
    """Return the processor's name for people; the kind of machine if the system does not report it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()


def has_native_bf16(device: torch.device) -> bool:
    """Tell whether the hardware multiplies bfloat16 faster than float32: a GPU since Ampere, a CPU with AVX512-BF16 or AMX."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type != "cpu":  # on a Mac's GPU it is no faster
        return False
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def precise(device: torch.device) -> torch.dtype:
    """Return the type of numbers for sums on a device: float64, which a Mac's GPU does not have."""
    return torch.float32 if device.type == "mps" else torch.float64


@functools.cache
def has_int8() -> bool:
    """Tell whether the CPU multiplies 8-bit integers into 32-bit sums; otherwise kernels saturate in 16 bits, or are slow.

    The library may have switched the processor's feature off, so a product with sums of two beyond 16 bits is computed once.
    """
    if not (torch.cpu._is_vnni_supported() or torch.cpu._is_amx_tile_supported()):
        return False
    try:
        unsigned = torch.full((PROBED, PROBED), 255, dtype=torch.uint8)
        signed = torch.full((PROBED, PROBED), 127, dtype=torch.int8)
        return bool((_int8_multiplied(unsigned, signed)() == 255 * 127 * PROBED).all())
    except (AttributeError, RuntimeError):  # a torch without oneDNN
        return False


def product_speed(precision: torch.dtype, seconds: float) -> float:
    """Return the FLOP/s of large dense products on the CPU: the best of at least three in `seconds`, after an untimed product.

    For int8 it is the product of unsigned with signed integers, as in `vitral.inference.int8`, into float32.
    """
    multiply = _int8_product() if precision == torch.int8 else _product(precision)
    multiply()
    taken: list[float] = []
    while len(taken) < PRODUCTS or sum(taken) < seconds:
        start = time.perf_counter()
        multiply()
        taken.append(time.perf_counter() - start)
    return 2 * PRODUCT_SIZE**3 / min(taken)


def _product(precision: torch.dtype) -> Callable[[], Tensor]:
    left, right = (torch.randn(PRODUCT_SIZE, PRODUCT_SIZE).to(precision) for _ in range(2))
    return lambda: left @ right


def _int8_product() -> Callable[[], Tensor]:
    unsigned = torch.randint(0, 256, (PRODUCT_SIZE, PRODUCT_SIZE), dtype=torch.uint8)
    signed = torch.randint(-127, 128, (PRODUCT_SIZE, PRODUCT_SIZE), dtype=torch.int8)
    return _int8_multiplied(unsigned, signed, zero=128)


def _int8_multiplied(unsigned: Tensor, signed: Tensor, zero: int = 0) -> Callable[[], Tensor]:
    """Return a function that multiplies unsigned integers, with `zero` as 0, by the rows of signed integers, into float32."""
    onednn = torch.ops.onednn
    packed = onednn.qlinear_prepack(signed, None)
    scales, zeros = torch.ones(len(signed)), torch.zeros(len(signed), dtype=torch.int64)
    return lambda: onednn.qlinear_pointwise(
        unsigned, 1.0, zero, packed, scales, zeros, None, 1.0, 0, torch.float32, "none", [], ""
    )


def keep_freed_memory() -> None:
    """Let the C library reuse freed blocks instead of returning them to the system.

    Computations allocate the same large blocks again and again. By default glibc maps each block anew and the kernel clears
    its pages at first touch, which costs a training step on a CPU 15 to 25 %. The peak of memory in use stays the same; memory
    is returned when the process ends. This does nothing if the C library is not glibc.
    """
    if not sys.platform.startswith("linux"):
        return
    library = ctypes.CDLL(None)
    if hasattr(library, "gnu_get_libc_version"):
        library.mallopt(M_MMAP_THRESHOLD, BLOCK_LIMIT)
        library.mallopt(M_TRIM_THRESHOLD, BLOCK_LIMIT)


def peak_memory_of(act: Callable[[], Result]) -> tuple[Result, int | None]:
    """Return an action's result, and the bytes by which the process's memory grew at most during the action.

    The bytes are None if the system does not report them, as outside of Linux. Memory of other threads counts, too.
    """
    if not sys.platform.startswith("linux"):
        return act(), None
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)  # free blocks in reserve would be used first, and not be counted
    try:
        CLEAR.write_text(FORGET_PEAK)
        before = _resident("VmRSS")
    except (OSError, ValueError):
        return act(), None
    result = act()
    return result, max(0, _resident("VmHWM") - before)


def _resident(name: str) -> int:
    """Return a figure of this process's memory, bytes."""
    return _entry(STATUS, f"{name}:") << 10


def memory_bytes() -> int | None:
    """Return all memory that this machine has, or that the container may take; None where the system does not say."""
    limits = []
    with contextlib.suppress(OSError, ValueError, StopIteration):
        limits.append(1024 * _entry(MEMORY_FILE, "MemTotal:"))
    if not limits and (physical := _physical_bytes()):
        limits.append(physical)
    with contextlib.suppress(OSError, ValueError):  # "max" without a limit
        limits.append(int((CONTROL_GROUP / "memory.max").read_text()))
    return min(limits) if limits else None


def free_bytes() -> int:
    """Return the memory that this machine, or the container, has to give; half of all where the system does not say."""
    free = []
    with contextlib.suppress(OSError, ValueError, StopIteration):
        free.append(1024 * _entry(MEMORY_FILE, "MemAvailable:"))
    with contextlib.suppress(OSError, ValueError):  # "max" without a limit
        most, used = (int((CONTROL_GROUP / name).read_text()) for name in ("memory.max", "memory.current"))
        free.append(max(most - used + _given_back(), 0))
    return min(free) if free else (_physical_bytes() or UNKNOWN_BYTES) // 2


def _physical_bytes() -> int | None:
    """Return the memory that is built in, where there is no /proc: macOS and Windows."""
    if hasattr(os, "sysconf"):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    kilobytes = ctypes.c_ulonglong()
    windows = getattr(ctypes, "windll", None)
    if windows is None or not windows.kernel32.GetPhysicallyInstalledSystemMemory(ctypes.byref(kilobytes)):
        return None  # some virtual machines do not say
    return kilobytes.value << 10


def _given_back() -> int:
    """Return the memory of the container that its kernel gives back when it is needed: files read a while ago, for the most."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        return _entry(CONTROL_GROUP / "memory.stat", "inactive_file")
    return 0


def _entry(path: Path, name: str) -> int:
    """Return the number behind a name in a file of the system's."""
    lines = (line.split() for line in path.read_text(encoding="utf-8").splitlines())
    return next(int(line[1]) for line in lines if line[0] == name)


def refuse_without_memory(threads: int) -> None:
    """Raise an error where there is no memory for so many threads to begin: one without it never does, and is waited for.

    Raises:
        OSError: There is none.
    """
    mmap.mmap(-1, threads * THREAD_BYTES).close()  # of the system, as a thread takes it, and not of what was freed


def in_threads(apply: Callable[[Item], Result], items: Sequence[Item]) -> Generator[Result, None, None]:
    """Give what a function makes of each item, in order.

    The first items tell how long one takes: only if that is long enough are the others shared out among threads, some at a
    time if they take little.

    Raises:
        Exception: whatever the function raised, when it is that item's turn; items that have not begun by then are left out.
    """
    seconds: list[float] = []
    for item in items[:AT_ONCE]:
        start = time.perf_counter()
        result = apply(item)
        seconds.append(time.perf_counter() - start)
        yield result
        if len(seconds) >= FEWEST and sum(seconds) > AT_ONCE * WORTHWHILE_SECONDS:
            break
    rest = items[len(seconds) :]
    if not rest:
        return
    if (each := statistics.median(seconds)) < WORTHWHILE_SECONDS:
        yield from map(apply, rest)
        return
    step = max(1, round(AT_ONCE * WORTHWHILE_SECONDS / each))

    def several(first: int) -> tuple[list[Result], Exception | None]:
        done: list[Result] = []
        try:
            for item in rest[first : first + step]:
                done.append(apply(item))
        except Exception as error:  # given behind what was done before it
            return done, error
        return done, None

    threads = os.cpu_count() or 1
    refuse_without_memory(threads)
    with ThreadPoolExecutor(threads) as pool:
        for results, error in pool.map(several, range(0, len(rest), step)):
            yield from results
            if error is not None:
                raise error
