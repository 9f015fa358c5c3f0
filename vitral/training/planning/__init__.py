"""From what a command asks to everything that is decided before the first step."""
