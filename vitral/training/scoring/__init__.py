"""What a run's network is scored by, before, while and after it trains, and what its scores say of the run."""
