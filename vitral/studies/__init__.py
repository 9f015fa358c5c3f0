"""Fine-tuning as users call it; many runs, one question: the paper's experiments, the sweep over learning rates."""
