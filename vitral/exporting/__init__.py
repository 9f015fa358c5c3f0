"""A classifier as one file for a runtime outside Vitral: decoded images in, probabilities out."""
