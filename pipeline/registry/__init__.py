"""The registry of pushed versions, which lists and verifies versions and changes which of them serve."""
