"""Training: from transformed examples to an exported SavedModel."""
