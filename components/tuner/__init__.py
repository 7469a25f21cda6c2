"""Tuner: trials of several values for training and model, and the best of them for the Trainer."""
