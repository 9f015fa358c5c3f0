"""How a network learns: one file a method, found by its name."""
