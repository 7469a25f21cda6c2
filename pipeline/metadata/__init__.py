"""What ML Metadata remembers about the runs, read into small typed records; no other package asks it."""
