"""What computes: prepared images in; logits, features, attention or class maps out."""
