"""Prediction: prepared images in; logits, probabilities, features, attention or class maps out."""
