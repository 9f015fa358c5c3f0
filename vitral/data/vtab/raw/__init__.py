"""VTAB's datasets in their authors' files, because TFDS, which prepares the official form, needs TensorFlow for it."""
