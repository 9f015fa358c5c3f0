"""Labelled images: sources, splits, deterministic sampling, loaders."""
