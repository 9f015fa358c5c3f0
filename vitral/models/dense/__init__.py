"""Networks whose answer is about regions of an image: heads over any backbone, and detectors."""
