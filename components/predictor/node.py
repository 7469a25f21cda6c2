"""Describes Predictor."""

from components.node import Node

NODES = (Node("Predictor", outputs=("predictions",), upstream=("Pusher",)),)
