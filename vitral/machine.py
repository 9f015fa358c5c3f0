"""What this machine is, as far as it decides how to compute."""

import ctypes
import functools
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
BLOCK_LIMIT = 1 << 30  # bytes; the largest that the C library takes for either threshold on every platform
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
FORGET_PEAK = "5"  # what CLEAR takes for the peak to begin anew (proc(5))
PRODUCT_SIZE = 4096  # rows and columns of the products that a machine is measured by
PROBED = 64  # rows and columns of a product that is only tried
PRODUCTS = 3  # timed at the least, of which the fastest counts


Result = TypeVar("Result")


def processor_name() -> str:
    """Return the processor's name for people; the kind of machine where the system does not tell it."""
    try:
        with open("/proc/cpuinfo") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()


def has_native_bf16(device: torch.device) -> bool:
    """Tell whether the hardware multiplies bfloat16 faster than float32: a GPU since Ampere, a CPU with AVX512-BF16 or AMX."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


@functools.cache
def has_int8() -> bool:
    """Tell whether the CPU multiplies 8-bit integers into 32-bit sums: without, kernels saturate in 16 bits, or crawl.

    What the processor has may be switched off for the library that multiplies, so that a product whose sums of two do not fit
    16 bits is computed once.
    """
    if not (torch.cpu._is_vnni_supported() or torch.cpu._is_amx_tile_supported()):
        return False
    try:
        one = torch.full((PROBED, PROBED), 255, dtype=torch.uint8)
        other = torch.full((PROBED, PROBED), 127, dtype=torch.int8)
        return bool((_int8_multiplied(one, other)() == 255 * 127 * PROBED).all())
    except (AttributeError, RuntimeError):  # a torch without oneDNN
        return False


def product_speed(precision: torch.dtype, seconds: float) -> float:
    """Return the FLOP/s of large dense products on the CPU: the best of some seconds, at least three, after one untimed.

    Of int8 it is the product of unsigned with signed integers, as `vitral.inference.int8` has it, into float32.
    """
    multiply = _int8_product() if precision == torch.int8 else _product(precision)
    multiply()
    taken: list[float] = []
    while len(taken) < PRODUCTS or sum(taken) < seconds:
        begun = time.perf_counter()
        multiply()
        taken.append(time.perf_counter() - begun)
    return 2 * PRODUCT_SIZE**3 / min(taken)


def _product(precision: torch.dtype) -> Callable[[], Tensor]:
    one, other = (torch.randn(PRODUCT_SIZE, PRODUCT_SIZE).to(precision) for _ in range(2))
    return lambda: one @ other


def _int8_product() -> Callable[[], Tensor]:
    one = torch.randint(0, 256, (PRODUCT_SIZE, PRODUCT_SIZE), dtype=torch.uint8)
    other = torch.randint(-127, 128, (PRODUCT_SIZE, PRODUCT_SIZE), dtype=torch.int8)
    return _int8_multiplied(one, other, zero=128)


def _int8_multiplied(one: Tensor, other: Tensor, zero: int = 0) -> Callable[[], Tensor]:
    """Return what multiplies unsigned integers, of which `zero` is 0, with the rows of signed ones, into float32."""
    packed = torch.ops.onednn.qlinear_prepack(other, None)
    scales, zeros = torch.ones(len(other)), torch.zeros(len(other), dtype=torch.int64)
    return lambda: torch.ops.onednn.qlinear_pointwise(
        one, 1.0, zero, packed, scales, zeros, None, 1.0, 0, torch.float32, "none", [], ""
    )


def keep_freed_memory() -> None:
    """Tell the C library to hand freed blocks out again instead of giving them back to the system.

    Whoever computes asks for the same large blocks again and again. By default glibc maps every one anew and the kernel clears
    its pages at first touch, which costs a training step on a CPU 15 to 25 %. Memory in use peaks no higher; it is given back
    when the process ends. Does nothing where the C library is not glibc.
    """
    if not sys.platform.startswith("linux"):
        return
    library = ctypes.CDLL(None)
    if hasattr(library, "gnu_get_libc_version"):
        library.mallopt(M_MMAP_THRESHOLD, BLOCK_LIMIT)
        library.mallopt(M_TRIM_THRESHOLD, BLOCK_LIMIT)


def peak_memory_of(act: Callable[[], Result]) -> tuple[Result, int | None]:
    """Return what an action gives, and the bytes by which the process's memory was larger at the most while it went on.

    None where the system does not tell, which is everywhere but on Linux. What other threads do meanwhile counts, too.
    """
    if not sys.platform.startswith("linux"):
        return act(), None
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)  # what is free but kept would be used first, and not be seen
    try:
        CLEAR.write_text(FORGET_PEAK)
        before = _resident("VmRSS")
    except (OSError, ValueError):
        return act(), None
    result = act()
    return result, max(0, _resident("VmHWM") - before)


def _resident(name: str) -> int:
    """Return a figure of this process's memory, bytes."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) << 10
