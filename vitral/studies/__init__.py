"""Many runs, one question: the paper's experiments, the sweep over learning rates, the demo."""
