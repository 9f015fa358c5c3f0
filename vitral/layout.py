"""Where things lie in a user's working folder: names that commands, rooms and users share."""

from pathlib import Path

RUNS = Path("runs")  # a run that is not given a folder makes one in here
CLASSIFIER = "classifier"  # in a run's folder: the classifier that it made
