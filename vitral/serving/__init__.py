"""Classifiers behind HTTP: images of many clients computed together, with limits, deadlines and figures."""
