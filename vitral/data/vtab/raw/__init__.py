"""VTAB's datasets in the files that their authors give out, put into TFDS's order without TensorFlow."""
