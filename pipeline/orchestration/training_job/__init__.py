"""What an existing cluster needs to train a config's model: a job file, and a manifest that starts its tasks."""
