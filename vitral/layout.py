"""Where things lie in a user's working folder: names that commands, rooms, other tools and users share."""

from pathlib import Path

RUNS = Path("runs")  # a run that is not given a folder makes one in here
CLASSIFIER = "classifier"  # in a run's folder: the classifier that it made
# The files of a classifier folder.
DESCRIPTION, WEIGHTS, CARD = "classifier.json", "weights.safetensors", "README.md"
CLASSIFIER_FILES = (DESCRIPTION, WEIGHTS, CARD)
