"""Alias for one release: pipelines compiled earlier name the forked runner by this module."""

from pipeline.orchestration.engines.forked_runner import ForkedRunner

__all__ = ["ForkedRunner"]
