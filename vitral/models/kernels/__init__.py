"""Layers written for a CPU's speed: a file each, next to the plain formula that it must equal."""
