"""Files that hold a whole classifier, and the runtimes that compute them."""
