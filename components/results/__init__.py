"""Files that one component writes and other components read, such as the manifest and signature of a version."""
