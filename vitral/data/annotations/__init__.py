"""Annotations of regions: one file a format, each from what is on disk to `Regions`."""
