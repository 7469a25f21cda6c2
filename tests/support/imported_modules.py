"""What a child of the nodes' server finds imported."""

from __future__ import annotations

import sys


def modules() -> tuple[list[str], list[str]]:
    """All modules, in the order in which their imports began; and those that define sections of the config."""
    from components.base.config_section import Section

    section_classes, sections = [Section], set[str]()
    while section_classes:
        below = section_classes.pop().__subclasses__()
        section_classes += below
        sections |= {section.__module__ for section in below}
    return list(sys.modules), sorted(sections)
