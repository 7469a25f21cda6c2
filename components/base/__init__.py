"""What all components use: errors, sections of the config, files, processes and memory."""
