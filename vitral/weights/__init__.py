"""Foreign checkpoints to our tensors and preprocessing."""
