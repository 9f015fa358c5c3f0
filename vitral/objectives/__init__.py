"""Losses: torch only."""
