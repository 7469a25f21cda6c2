"""The `push` section: where blessed models are pushed, how many versions are kept, and how requests reach them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from components.config_section import Section
from components.model_signature import PRIVATE_KEY_ENVIRONMENT, PUBLIC_KEY_ENVIRONMENT


def _address(value: str) -> str:
    host, _, port = value.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536 or any(each.isspace() for each in host):
        raise ValueError(f"expected host:port, received {value!r}")
    return value


Address = Annotated[str, AfterValidator(_address)]


class RolloutConfig(Section):
    """Settings of the files in `rollout/`: addresses of servers and proxies, and the push folder as they see it."""

    model_name: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """The model's name in requests; by default the pipeline's name."""
    base_path: str | None = None
    """The push folder's path on the model servers, such as /models/taxi in a container; by default the same path."""
    servers: tuple[Address, ...] = Field(default=("127.0.0.1:8501", "127.0.0.1:8511"), min_length=1)
    """The model servers' REST addresses, which HAProxy sends requests to."""
    grpc_servers: tuple[Address, ...] = ("127.0.0.1:8500", "127.0.0.1:8510")
    """Their gRPC addresses, in the same order, on the same hosts; without any, HAProxy does not serve gRPC."""
    listen: Address = "127.0.0.1:8080"
    """HAProxy's address for REST requests."""
    listen_grpc: Address = "127.0.0.1:8081"
    """HAProxy's address for gRPC requests."""
    listen_metrics: Address = "127.0.0.1:8404"
    """HAProxy's address for its own metrics in Prometheus' format."""
    sticky_header: str | None = Field(default=None, pattern=r"^[A-Za-z0-9-]+$")
    """A header such as X-User-Id whose value decides who gets the canary: requests with the same value are answered by
    the same version, and a greater share keeps those that the smaller one had. For HAProxy; requests without it are
    drawn at random."""
    host: str | None = None
    """The Kubernetes service that Istio routes; by default the model's name."""
    storage_uri: str | None = None
    """The push folder for KServe, such as pvc://models/taxi; by default the push folder itself if it is a gs:// one, or
    else pvc://models/ and the model's name."""

    def service(self, model: str) -> str:
        """Returns the name of the Kubernetes service of a model."""
        return self.host or model.lower().replace("_", "-").replace(".", "-")

    @model_validator(mode="after")
    def _pairs(self) -> RolloutConfig:
        hosts, grpc_hosts = ([each.rpartition(":")[0] for each in some] for some in (self.servers, self.grpc_servers))
        if grpc_hosts and grpc_hosts != hosts:
            received = f"received {', '.join(hosts)} and {', '.join(grpc_hosts)}"
            raise ValueError(f"expected grpc_servers on the same hosts as servers, or none; {received}")
        return self


class VertexConfig(Section):
    """The Vertex AI endpoint for `target: vertex`; the model is deployed from the push folder, a gs:// one."""

    project: str
    """The Google Cloud project."""
    region: str
    """Such as us-central1."""
    endpoint: str
    """The endpoint's display name; it is created if it does not exist."""
    image: str = "us-docker.pkg.dev/vertex-ai/prediction/tf2-cpu.2-15:latest"
    """The container that serves the model."""
    machine_type: str = "n1-standard-4"
    """The endpoint's type of machine."""
    min_replicas: int = Field(default=1, ge=1)
    """Smallest number of machines."""
    max_replicas: int = Field(default=1, ge=1)
    """Greatest number of machines."""
    traffic_percent: int = Field(default=100, ge=0, le=100)
    """Share of the endpoint's traffic that the new model gets immediately, in percent."""


class ModelSigningConfig(Section):
    """A signature of each version, `model.sig`, that other tools can verify; needs the extra `signing`."""

    private_key_env: str = Field(default=PRIVATE_KEY_ENVIRONMENT, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    """The environment variable with the path of the PEM file of a private key (on an elliptic curve, without a
    password), where models are pushed to a local folder; if it is not set, there is no model.sig."""
    public_key_env: str = Field(default=PUBLIC_KEY_ENVIRONMENT, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    """The environment variable with the path of the PEM file of its public key; if it is set, a version without a valid
    model.sig is refused."""


class PushConfig(Section):
    """The folder that a model server watches; each pushed model is a numbered folder in it."""

    directory: str | None = None
    """The push folder, local or remote such as gs://bucket/models/taxi; by default the run's own folder `pushed`."""
    target: Literal["filesystem", "vertex"] = "filesystem"
    """filesystem: the folder only. vertex: the model is also deployed from the folder to a Vertex AI endpoint."""
    keep: int | None = Field(default=None, ge=1)
    """Number of versions that remain after a push; by default all. The stable version, the canary and the previous
    stable version always remain."""
    stage_on_push: Literal["stable", "first", "none"] = "stable"
    """Which pushed versions become the stable one: stable: each, except while a canary runs; first: only the first;
    none: none."""
    model_signing: ModelSigningConfig = Field(default_factory=ModelSigningConfig)
    """Signatures in the format of OpenSSF's model signing, with a private and a public key."""
    rollout: RolloutConfig = Field(default_factory=RolloutConfig)
    """Settings of the files for model servers and proxies."""
    vertex: VertexConfig | None = None
    """The endpoint for `target: vertex`."""

    @model_validator(mode="after")
    def _has_endpoint(self) -> PushConfig:
        if self.target == "vertex":
            if self.vertex is None:
                raise ValueError("expected push.vertex with target: vertex, received none")
            if not (self.directory or "").startswith("gs://"):
                raise ValueError(f"expected a gs:// directory with target: vertex, received {self.directory!r}")
        return self
