"""From the bytes of an image to a tensor."""
