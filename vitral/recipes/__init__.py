"""The recipes that come with Vitral: data, not code."""
