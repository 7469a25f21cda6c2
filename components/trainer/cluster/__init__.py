"""A training cluster: the roles of its tasks, their status messages, and a supervisor for a cluster on one machine."""
