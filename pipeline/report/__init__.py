"""Pages that tell of runs: the report of one, its model card, and the list of all; plain files that need no server."""
