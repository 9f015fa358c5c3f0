"""From the bytes of a picture to a tensor."""
