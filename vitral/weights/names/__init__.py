"""One module a family: what its tensors are called elsewhere."""
