"""Predictions of many images as a file: read ahead, computed in batches, in parts that a killed job goes on from."""
