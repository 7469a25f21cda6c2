"""Basic modules that all components use: errors, config sections, files, processes and memory."""
