"""How a network learns: each method in a file of its own, found by its name."""
