"""Lists the modules that the node server has imported for its children."""

from __future__ import annotations

import sys


def modules() -> tuple[list[str], list[str]]:
    """Return all imported modules in import order, and the modules that define sections of the config."""
    from components.base.config_section import Section

    section_classes, sections = [Section], set[str]()
    while section_classes:
        below = section_classes.pop().__subclasses__()
        section_classes += below
        sections |= {section.__module__ for section in below}
    return list(sys.modules), sorted(sections)
