"""What can be set of a run: the sections of a recipe, and the recipe."""
