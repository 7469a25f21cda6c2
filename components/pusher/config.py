"""The `push` section of the config: where blessed models go, how many are kept, and how they get to their traffic."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from components.section import Section
from components.version import KEY_ENVIRONMENT


def _address(value: str) -> str:
    host, _, port = value.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536 or any(each.isspace() for each in host):
        raise ValueError(f"expected host:port, received {value!r}")
    return value


Address = Annotated[str, AfterValidator(_address)]


class RolloutConfig(Section):
    """What the files in `rollout/` say besides versions and weights: where the servers are and what they see."""

    model_name: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """The model's name in requests; the pipeline's if not given."""
    base_path: str | None = None
    """The push folder as the model servers see it, such as /models/taxi in a container; if not given, as we do."""
    servers: tuple[Address, ...] = Field(default=("127.0.0.1:8501", "127.0.0.1:8511"), min_length=1)
    """The model servers' REST addresses, which HAProxy sends requests to."""
    grpc_servers: tuple[Address, ...] = ("127.0.0.1:8500", "127.0.0.1:8510")
    """Their gRPC addresses, in the same order, on the same hosts; none: HAProxy takes no gRPC."""
    listen: Address = "127.0.0.1:8080"
    """Where HAProxy takes REST requests."""
    listen_grpc: Address = "127.0.0.1:8081"
    """Where HAProxy takes gRPC requests."""
    listen_metrics: Address = "127.0.0.1:8404"
    """Where HAProxy tells Prometheus its own metrics."""
    host: str | None = None
    """The Kubernetes service that Istio routes; the model's name if not given."""
    storage_uri: str | None = None
    """The push folder for KServe, such as pvc://models/taxi or gs://bucket/models/taxi; pvc://models/ and the model's
    name if not given."""

    @model_validator(mode="after")
    def _pairs(self) -> RolloutConfig:
        hosts, grpc_hosts = ([each.rpartition(":")[0] for each in some] for some in (self.servers, self.grpc_servers))
        if grpc_hosts and grpc_hosts != hosts:
            told = f"received {', '.join(hosts)} and {', '.join(grpc_hosts)}"
            raise ValueError(f"expected grpc_servers on the same hosts as servers, or none; {told}")
        return self


class VertexConfig(Section):
    """The Vertex AI endpoint for `target: vertex`; the model is deployed from the push folder, a gs:// one."""

    project: str
    """The Google Cloud project."""
    region: str
    """Such as us-central1."""
    endpoint: str
    """The endpoint's display name; made if there is none."""
    image: str = "us-docker.pkg.dev/vertex-ai/prediction/tf2-cpu.2-15:latest"
    """The container that serves the model."""
    machine_type: str = "n1-standard-4"
    """The machines behind the endpoint."""
    min_replicas: int = Field(default=1, ge=1)
    """Machines at least."""
    max_replicas: int = Field(default=1, ge=1)
    """Machines at most."""
    traffic_percent: int = Field(default=100, ge=0, le=100)
    """How much of the endpoint's traffic the new model takes at once."""


class PushConfig(Section):
    """The folder that a model server watches; each pushed model is a numbered folder in it."""

    directory: str | None = None
    """The folder, local or remote such as gs://bucket/models/taxi; the run's own folder `pushed` if not given."""
    target: Literal["filesystem", "vertex"] = "filesystem"
    """filesystem: the folder is all. vertex: from the folder, the model is deployed to a Vertex AI endpoint too."""
    keep: int | None = Field(default=None, ge=1)
    """How many versions stay after a push; all if not given. The stable one, the canary and the one that a rollback
    goes back to stay in any case."""
    stage_on_push: Literal["stable", "first", "none"] = "stable"
    """Which pushed versions become the stable one: each, but while a canary runs none; only the first; or none."""
    signing_key_env: str = Field(default=KEY_ENVIRONMENT, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    """The environment variable with the key that manifests are signed with; if it is not set, they are not signed."""
    rollout: RolloutConfig = Field(default_factory=RolloutConfig)
    """What the files for model servers and proxies say."""
    vertex: VertexConfig | None = None
    """The endpoint for `target: vertex`."""

    @model_validator(mode="after")
    def _reaches_its_target(self) -> PushConfig:
        if self.target == "vertex":
            if self.vertex is None:
                raise ValueError("expected push.vertex with target: vertex, received none")
            if not (self.directory or "").startswith("gs://"):
                raise ValueError(f"expected a gs:// directory with target: vertex, received {self.directory!r}")
        return self
