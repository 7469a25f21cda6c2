"""The `metadata` section: where ML Metadata keeps what has happened."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator
from typing_extensions import Self

from components.section import Section
from pipeline.metadata.database import PASSWORD

Name = Annotated[str, StringConstraints(min_length=1, pattern=r"^[^\x00-\x1f]*$")]


class TlsConfig(Section):
    """How the connection to a database server is encrypted; the server's certificate is always checked."""

    ca: Name
    """File with the certificates of who may vouch for the server, in PEM."""
    certificate: Name | None = None
    """File with this client's own certificate, for servers that ask for one."""
    key: Name | None = None
    """File with its key."""

    @model_validator(mode="after")
    def _are_a_pair(self) -> Self:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("expected certificate and key together, received one of them")
        return self


class MetadataConfig(Section):
    """Where ML Metadata keeps what has happened; a server is for pipelines that run on several machines."""

    backend: Literal["sqlite", "postgresql", "mysql"] = "sqlite"
    """sqlite: the file metadata.db in the output folder. mysql: MySQL or MariaDB."""
    host: Name | None = None
    """Name or address of the database server."""
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Its port; without a number, 5432 for postgresql and 3306 for mysql."""
    database: Name | None = None
    """The database, which has to be there; its tables are made by the first run."""
    user: Name | None = None
    """Who connects."""
    password_env: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] = PASSWORD
    """The environment variable that holds the password, which stands in no file."""
    tls: TlsConfig | None = None
    """Encryption of the connection; without it, everything but the password goes in the clear."""

    @model_validator(mode="after")
    def _fits_the_backend(self) -> Self:
        told = [name for name in ("host", "port", "database", "user", "tls") if getattr(self, name) is not None]
        if self.backend == "sqlite" and told:
            raise ValueError(f"expected no {told[0]} for backend sqlite, received one: name the backend of the server")
        for name in ("host", "database", "user"):
            if self.backend != "sqlite" and name not in told:
                raise ValueError(f"expected a {name} for backend {self.backend}, received none")
        return self
