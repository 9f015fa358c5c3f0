"""Layers written for a CPU's speed: a file each, beside the plain formula that it must equal."""
