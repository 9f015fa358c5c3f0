"""How weights change: optimizers, schedules, averaging, which of them learn, and in which precision."""
