"""Checks: what is in a dataset before anything is trained on it, and the proof that a killed run resumes."""
