"""Recipe, loop, state: from data to a classifier folder."""
