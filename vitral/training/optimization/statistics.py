"""What a forward pass changes already: a batch norm's statistics and their like."""

from torch import Tensor, nn


class Statistics:
    """The floating-point buffers of a module."""

    def __init__(self, module: nn.Module) -> None:
        self.buffers = [buffer for buffer in module.buffers() if buffer.is_floating_point()]

    def copy(self) -> list[Tensor]:
        """Return copies of them."""
        return [buffer.clone() for buffer in self.buffers]

    def put(self, values: list[Tensor]) -> None:
        """Put values in their place."""
        for buffer, value in zip(self.buffers, values, strict=True):
            buffer.copy_(value)
