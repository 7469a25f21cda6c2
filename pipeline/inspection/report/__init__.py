"""Pages about runs, as files or served live: the report of a run, its model card, and the list of runs."""
