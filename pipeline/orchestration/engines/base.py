"""The interface of the engines that Beam runs on: options, description and requirements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Generic, TypeVar

from components.base.config_section import Section

SectionT = TypeVar("SectionT", bound=Section)


class Engine(ABC, Generic[SectionT]):
    """One engine; `section` is the section of the config that has its name.

    An installed package adds an engine with a subclass, and an entry point of the group `tfx_pipeline.engines`. The
    class attribute `section_type` is then the type of `runtime.engine_options`, and `section` an instance of it.
    """

    section_type: ClassVar[type[Section]] = Section

    @abstractmethod
    def options(self, section: SectionT) -> list[str]:
        """Beam's options."""

    @abstractmethod
    def describe(self, section: SectionT) -> str:
        """Return the engine in one line, for the start of a run."""

    @abstractmethod
    def reads_this_disk(self, section: SectionT) -> bool:
        """Whether its workers see the folders of this machine."""

    def addresses(self, section: SectionT) -> tuple[str, ...]:
        """Each host:port that must accept connections before a run starts."""
        return ()

    def check(self, section: SectionT) -> None:
        """Check what only this engine has, before a run and after its addresses have answered.

        Raises:
          PipelineError: a run would fail on it.
        """

    def jar(self, section: SectionT) -> str | None:
        """Return a jar that must exist, and needs java; None if there is none."""
        return None
