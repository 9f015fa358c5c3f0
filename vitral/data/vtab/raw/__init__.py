"""VTAB's datasets in the files that their authors give out, because TFDS needs TensorFlow to prepare them and few can run it."""
