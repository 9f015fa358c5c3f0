"""What a classifier is worth, in figures."""
