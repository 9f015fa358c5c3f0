"""Published datasets in the form in which their authors give them out, one file a dataset."""
