"""The entry of Predictor in the list of nodes."""

from components.base.node import Node

NODES = (Node("Predictor", outputs=("predictions",), upstream=("Pusher",)),)
