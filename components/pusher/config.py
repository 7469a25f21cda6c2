"""The `push` section of the config: the push folder, the number of versions to keep, and how requests reach them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from components.base.config_section import Section
from components.base.serving_images import VERTEX_PREDICTION
from components.results.model_signature import PRIVATE_KEY_ENVIRONMENT, PUBLIC_KEY_ENVIRONMENT


def _check_address(value: str) -> str:
    host, _, port = value.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536 or any(character.isspace() for character in host):
        raise ValueError(f"expected host:port, received {value!r}")
    return value


Address = Annotated[str, AfterValidator(_check_address)]


class RolloutConfig(Section):
    """Settings of the files in `rollout/`: the addresses of servers and proxies, and their path of the push folder."""

    model_name: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Name of the model in requests. By default, the name of the pipeline."""
    base_path: str | None = None
    """Path of the push folder on the model servers, such as /models/taxi in a container. By default, the same path."""
    servers: tuple[Address, ...] = Field(default=("127.0.0.1:8501", "127.0.0.1:8511"), min_length=1)
    """REST addresses of the model servers. HAProxy sends requests to them."""
    grpc_servers: tuple[Address, ...] = ("127.0.0.1:8500", "127.0.0.1:8510")
    """gRPC addresses of the model servers, on the same hosts and in the same order as `servers`. If the list is empty,
    HAProxy does not serve gRPC."""
    listen: Address = "127.0.0.1:8080"
    """Address on which HAProxy accepts REST requests."""
    listen_grpc: Address = "127.0.0.1:8081"
    """Address on which HAProxy accepts gRPC requests."""
    listen_metrics: Address = "127.0.0.1:8404"
    """Address on which HAProxy serves its metrics in Prometheus' format."""
    response_seconds: float = Field(default=30, gt=0, le=3600)
    """Seconds that HAProxy waits for the answer of a server, or for the next part of it. Then it sends the request to
    another server, at most three times. It bounds the delay of a request whose server does not answer any more."""
    sticky_header: str | None = Field(default=None, pattern=r"^[A-Za-z0-9-]+$")
    """Name of an HTTP header, such as X-User-Id. HAProxy sends requests with the same value of this header to the same
    version. If the canary's share grows, values that already get the canary continue to get it. Requests without the
    header are assigned at random."""
    host: str | None = None
    """Name of the Kubernetes service whose requests Istio routes. By default, the name of the model."""
    storage_uri: str | None = None
    """URI of the push folder for KServe, such as pvc://models/taxi. By default the push folder if it is a gs:// or s3://
    folder, otherwise pvc://models/ followed by the model's name."""

    def service(self, model: str) -> str:
        """Return the name of the Kubernetes service of a model."""
        return self.host or model.lower().replace("_", "-").replace(".", "-")

    @model_validator(mode="after")
    def _check_hosts(self) -> RolloutConfig:
        hosts, grpc_hosts = (
            [address.rpartition(":")[0] for address in addresses] for addresses in (self.servers, self.grpc_servers)
        )
        if grpc_hosts and grpc_hosts != hosts:
            received = f"received {', '.join(hosts)} and {', '.join(grpc_hosts)}"
            raise ValueError(f"expected grpc_servers on the same hosts as servers, or none; {received}")
        return self


class VertexConfig(Section):
    """The Vertex AI endpoint for `target: vertex`. Models are deployed from the push folder, which must be a bucket."""

    project: str
    """The Google Cloud project."""
    region: str
    """The region of the endpoint, such as us-central1."""
    endpoint: str
    """Display name of the endpoint, which is created if it does not exist."""
    image: str = VERTEX_PREDICTION
    """The container image that serves the model. The default is the newest prebuilt container of Vertex AI, whose
    TensorFlow 2.15 is older than the TensorFlow that exports the model."""
    machine_type: str = "n1-standard-4"
    """The machine type of the endpoint."""
    min_replicas: int = Field(default=1, ge=1)
    """Minimum number of machines."""
    max_replicas: int = Field(default=1, ge=1)
    """Maximum number of machines."""
    traffic_percent: int = Field(default=100, ge=0, le=100)
    """Share of the endpoint's traffic that a new model gets when it is deployed, in percent."""


class ModelSigningConfig(Section):
    """Signs every version: its `model.sig` can be verified by other tools. Requires the extra `signing`."""

    private_key_env: str = Field(default=PRIVATE_KEY_ENVIRONMENT, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    """Name of the environment variable with the path of a private key: a PEM file with an elliptic curve key, without a
    password. It is used when a model is pushed to a local folder. If the variable is not set, models are not signed."""
    public_key_env: str = Field(default=PUBLIC_KEY_ENVIRONMENT, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    """Name of the environment variable with the path of the public key, a PEM file. If the variable is set, versions
    without a valid model.sig are refused."""


class PushConfig(Section):
    """The push folder, which model servers watch. Every pushed model is a numbered version in it."""

    directory: str | None = None
    """Push folder, local or remote: gs://bucket/models/taxi, s3://bucket/models/taxi or az://container/models/taxi. By
    default, the folder `pushed` of the pipeline."""
    target: Literal["filesystem", "vertex"] = "filesystem"
    """Destination of a push. filesystem: the push folder; vertex: the push folder and a Vertex AI endpoint."""
    keep: int | None = Field(default=None, ge=1)
    """Number of newest versions that remain after a push. By default, all versions remain. The stable version, the
    canary and the previous stable version are never removed."""
    stage_on_push: Literal["stable", "first", "none"] = "stable"
    """Whether a pushed version becomes the stable version. stable: always, except while a canary runs; first: only if
    no version is stable yet; none: never."""
    approval: Literal["none", "required"] = "none"
    """Whether a person approves each push. none: a blessed model is pushed by the run; required: the run ends with a
    model that waits for `models approve`, and only then is it pushed."""
    model_signing: ModelSigningConfig = Field(default_factory=ModelSigningConfig)
    """Signatures in OpenSSF's model signing format, with a private and a public key."""
    rollout: RolloutConfig = Field(default_factory=RolloutConfig)
    """Settings of the configuration files for model servers and proxies."""
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
