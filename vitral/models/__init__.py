"""The networks: torch only, no files, no training."""
