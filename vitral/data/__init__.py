"""Labelled pictures: sources, splits, deterministic sampling, loaders."""
