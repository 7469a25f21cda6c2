"""What every engine that Beam runs on has to tell: its options, what a run says of it, and what it needs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from components.section import Section

SectionT = TypeVar("SectionT", bound=Section)


class Engine(ABC, Generic[SectionT]):
    """One engine; `section` is the section of the config that has its name."""

    @abstractmethod
    def options(self, section: SectionT) -> list[str]:
        """Beam's options."""

    @abstractmethod
    def told(self, section: SectionT) -> str:
        """What a run says of it, in one line."""

    @abstractmethod
    def reads_this_disk(self, section: SectionT) -> bool:
        """Whether its workers see the folders of this machine."""

    def addresses(self, section: SectionT) -> tuple[str, ...]:
        """Each host:port that has to answer before a run begins."""
        return ()

    def jar(self, section: SectionT) -> str | None:
        """A jar that has to be there, and java with it."""
        return None
