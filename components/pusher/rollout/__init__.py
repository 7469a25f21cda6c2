"""The files written from the state of a push folder: what model servers and proxies have to know of it."""

from components.pusher.rollout.write import FOLDER, write

__all__ = ["FOLDER", "write"]
