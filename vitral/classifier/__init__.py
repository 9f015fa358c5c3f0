"""A classifier is a folder: weights, preprocessing, class names, provenance."""
