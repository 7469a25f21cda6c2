"""Networks that are built from the config, each an entry of one registry."""
