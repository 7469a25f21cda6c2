"""Networks that are built from the config. A registry lists them by kind."""
