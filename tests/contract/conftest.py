"""Database servers that tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.servers import databases

_SERVERS = [
    pytest.param(name, marks=[pytest.mark.needs(program), *[pytest.mark.slow] * (name != "postgresql")])
    for name, program in databases.PROGRAMS.items()
]


@pytest.fixture(scope="module", params=_SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[databases.Server]:
    """Yield a server, with its user's password in the environment."""
    with pytest.MonkeyPatch.context() as patch, databases.SERVERS[request.param]() as started:
        patch.setenv("METADATA_PASSWORD", databases.PASSWORD)
        yield started
