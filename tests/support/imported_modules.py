"""What a child of the nodes' server finds imported."""

from __future__ import annotations

import sys


def modules() -> tuple[list[str], list[str]]:
    """All modules, in the order in which their imports began; and those that define sections of the config."""
    from components.base.config_section import Section

    found, sections = [Section], set[str]()
    while found:
        below = found.pop().__subclasses__()
        found += below
        sections |= {each.__module__ for each in below}
    return list(sys.modules), sorted(sections)
