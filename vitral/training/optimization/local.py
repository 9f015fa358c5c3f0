"""What this process holds of tensors that may be shared out to several."""

from collections.abc import Iterable

from torch import Tensor
from torch.distributed.tensor import DTensor


def local_parts(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Return each tensor's part in this process: itself, unless it is shared out; not copied, so it may be changed in place."""
    return [tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in tensors]
