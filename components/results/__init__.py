"""Files that one component writes and others read: the manifest, the signature and the request schema of a version."""
