"""A training cluster: its tasks, who starts and watches them on one machine, and what each of them does."""
