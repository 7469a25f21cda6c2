"""Private or undocumented hooks of upstream libraries: one module per library, each hook with its reason."""
