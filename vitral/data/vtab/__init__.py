"""VTAB-1k's 19 tasks, read without TensorFlow."""
