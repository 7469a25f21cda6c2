"""Private or undocumented hooks of upstream libraries, with one module per library and the reason for every hook."""
