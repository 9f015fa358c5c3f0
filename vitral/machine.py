"""What this machine is, as far as it decides how to compute."""

import ctypes
import platform
import sys
import time

import torch

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
BLOCK_LIMIT = 1 << 30  # bytes; the largest that the C library takes for either threshold on every platform
PRODUCT_SIZE = 4096  # rows and columns of the products that a machine is measured by
PRODUCTS = 3  # timed at the least, of which the fastest counts


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


def product_speed(precision: torch.dtype, seconds: float) -> float:
    """Return the FLOP/s of large dense products on the CPU: the best of some seconds, at least three, after one untimed."""
    one, other = (torch.randn(PRODUCT_SIZE, PRODUCT_SIZE).to(precision) for _ in range(2))
    one @ other
    taken: list[float] = []
    while len(taken) < PRODUCTS or sum(taken) < seconds:
        begun = time.perf_counter()
        one @ other
        taken.append(time.perf_counter() - begun)
    return 2 * PRODUCT_SIZE**3 / min(taken)


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
