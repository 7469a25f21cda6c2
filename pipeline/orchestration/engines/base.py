"""The interface of the engines that Beam runs on: options, description and requirements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Generic, TypeVar

from components.base.config_section import Section

SectionT = TypeVar("SectionT", bound=Section)


class Engine(ABC, Generic[SectionT]):
    """An engine. The argument `section` of its methods is the section of the config with the name of the engine.

    An installed package adds an engine with a subclass, and an entry point of the group `tfx_pipeline.engines`. The
    class attribute `section_type` is then the type of `runtime.engine_options`, and `section` is an instance of it.
    """

    section_type: ClassVar[type[Section]] = Section

    @abstractmethod
    def options(self, section: SectionT) -> list[str]:
        """Return Beam's options for the engine."""

    @abstractmethod
    def describe(self, section: SectionT) -> str:
        """Describe the engine in one line, for the start of a run."""

    @abstractmethod
    def reads_this_disk(self, section: SectionT) -> bool:
        """Return whether the engine's workers see the folders of this machine."""

    def addresses(self, section: SectionT) -> tuple[str, ...]:
        """Return each host:port that must accept connections before a run starts."""
        return ()

    def check(self, section: SectionT) -> None:
        """Run checks that are specific to this engine, before a run and after its addresses have accepted connections.

        Raises:
          PipelineError: A run on the engine would fail.
        """

    def jar(self, section: SectionT) -> str | None:
        """Return the path of a jar that the nodes start with java; None if the engine does not use a jar."""
        return None
