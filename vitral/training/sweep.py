"""The learning rates that a sweep tries, and which of them was best (paper Table 4 and appendix B.1.1)."""

from vitral.training.recipe import Recipe

FACTORS = (1 / 3, 1.0, 3.0, 10.0)  # of the recipe's own rate, where it names none to sweep: the paper's distances


def sweep_rates(recipe: Recipe) -> tuple[float, ...]:
    """Return the rates to try with a recipe, ascending."""
    named = recipe.optimizer.sweep
    return named or tuple(float(f"{recipe.optimizer.lr * factor:.2g}") for factor in FACTORS)


def best_rate(figures: dict[float, float]) -> float:
    """Return the rate with the best validation figure, the smallest among equals."""
    return max(sorted(figures), key=lambda rate: figures[rate])
