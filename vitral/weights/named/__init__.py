"""Published weights by name: the table of what there is, and the way from a name to a file."""
