"""HTML pages about runs: the report of a run, its model card, and the list of runs; as files, or served live."""
