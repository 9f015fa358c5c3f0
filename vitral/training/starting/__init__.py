"""From a request to a run that is ready to begin: folder, data, start, network and plan."""
