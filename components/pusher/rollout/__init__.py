"""The configuration files of model servers and proxies, written from the state of a push folder."""

from components.pusher.rollout.write import FOLDER, MODELS, VERSIONS, announce, files, write

__all__ = ["FOLDER", "MODELS", "VERSIONS", "announce", "files", "write"]
