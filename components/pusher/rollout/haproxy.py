"""Render HAProxy's configuration, which splits requests between the stable version and the canary.

Requests that name a version are passed on unchanged.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

from components.pusher.rollout.snapshot import RolloutSnapshot

_GLOBAL = """\
# Written from registry.json with every change of it; don't edit. HAProxy (started with -W) reloads it at SIGUSR2.
global
  maxconn 2000
  # A request is sent to another server only as long as all of it is in this buffer.
  tune.bufsize 131072

defaults
  mode http
  timeout connect 1s
  timeout client 30s
  timeout check 2s
  timeout http-request 10s
  # A reload closes a connection with its next answer: a client that sends at the same moment would get none.
  option idle-close-on-response
  # A request that a failed server did not answer is sent to another server; so a prediction may be computed twice.
  # 404: the server has not loaded the version yet. Only a completely buffered request can be sent again.
  option http-buffer-request
  retries 3
  option redispatch 1
  retry-on conn-failure empty-response junk-response response-timeout 404 503
"""


def render_config(snapshot: RolloutSnapshot) -> str:
    """Return the content of haproxy.cfg."""
    return "\n".join(
        [
            f"{_GLOBAL}  timeout server {round(1000 * snapshot.settings.response_seconds)}ms\n",
            *_render_resolvers(snapshot),
            *_render_rest(snapshot),
            *_render_grpc(snapshot),
            *_render_metrics(snapshot),
        ]
    )


def _render_resolvers(snapshot: RolloutSnapshot) -> Iterator[str]:
    if _has_names(snapshot):
        # Resolve names repeatedly: a container that is recreated keeps its name, but gets another address.
        yield "resolvers system"
        yield "  parse-resolv-conf"
        yield "  hold valid 5s"
        yield ""


def _render_rest(snapshot: RolloutSnapshot) -> Iterator[str]:
    yield "frontend rest"
    yield f"  bind {snapshot.settings.listen}"
    name = re.escape(snapshot.name)
    yield f"  acl unversioned path_reg ^/v1/models/{name}:(predict|classify|regress)$"
    yield "  http-request set-var(txn.label) str(stable) if unversioned"
    if snapshot.canary:
        # `nbsrv` restricts this to times at which at least one server has loaded the canary.
        canary = "  http-request set-var(txn.label) str(canary) if unversioned { nbsrv(canary) gt 0 }"
        yield from (f"{canary} {condition}" for condition in _list_canary_conditions(snapshot, snapshot.canary.version))
        yield f"{canary} {{ req.hdr(x-canary) -m str always }}"
    rewritten = rf"/v1/models/{snapshot.name}/labels/%[var(txn.label)]:\1"
    yield f"  http-request replace-path ^/v1/models/{name}:(predict|classify|regress)$ {rewritten} if unversioned"
    if snapshot.canary:
        yield "  use_backend canary if { var(txn.label) -m str canary }"
    yield "  default_backend stable"
    yield ""
    for label in ("stable", "canary") if snapshot.canary else ("stable",):
        yield f"backend {label}"
        yield from _render_check(snapshot, label)
        for index, server in enumerate(snapshot.settings.servers):
            yield f"  server {_name_server(index)} {server}"
        yield ""


def _list_canary_conditions(snapshot: RolloutSnapshot, version: int) -> Iterator[str]:
    """Yield alternative conditions: a request that meets any of them is sent to the canary."""
    weights = snapshot.weights
    total, share = sum(weights), weights[1]
    random = f"{{ rand({total}) lt {share} }}"
    header = snapshot.settings.sticky_header
    if header:
        # The version is the seed of the hash. With a constant seed, the same clients would get every canary.
        yield f"{{ req.fhdr({header}),xxh32({version % 2**32}),mod({total}) lt {share} }}"
        yield f"!{{ req.fhdr({header}) -m found }} {random}"
    else:
        yield random


def _render_grpc(snapshot: RolloutSnapshot) -> Iterator[str]:
    if not snapshot.settings.grpc_servers:
        return
    # A gRPC request contains the version label in its message, which HAProxy does not parse. Clients choose the label
    # themselves, so gRPC requests are not split by weight.
    yield "frontend grpc"
    yield f"  bind {snapshot.settings.listen_grpc} proto h2"
    yield "  default_backend grpc"
    yield ""
    yield "backend grpc"
    yield from _render_check(snapshot, "stable")
    for index, (server, rest_server) in enumerate(
        zip(snapshot.settings.grpc_servers, snapshot.settings.servers, strict=True)
    ):
        # The health check asks the REST port of the same host.
        port = rest_server.rpartition(":")[2]
        yield f"  server {_name_server(index)} {server} proto h2 check-proto h1 port {port}"
    yield ""


def _render_check(snapshot: RolloutSnapshot, label: str) -> Iterator[str]:
    yield "  balance roundrobin"
    yield "  option httpchk"
    # TensorFlow Serving ignores the label of a request for states. The metadata exist if the version of the label is
    # loaded. The label of a canary stays at the version before it until the canary is loaded: ask for its state.
    canary = snapshot.canary if label == "canary" else None
    path, text = (
        (f"versions/{canary.version}", "AVAILABLE") if canary else (f"labels/{label}/metadata", "signature_def")
    )
    yield f"  http-check send meth GET uri /v1/models/{snapshot.name}/{path}"
    yield f"  http-check expect string '\"{text}\"'"
    resolvers = " resolvers system init-addr last,libc,none" if _has_names(snapshot) else ""
    yield f"  default-server check inter 500ms fall 2 rise 1{resolvers}"


def _render_metrics(snapshot: RolloutSnapshot) -> Iterator[str]:
    yield "frontend metrics"
    yield f"  bind {snapshot.settings.listen_metrics}"
    yield "  no log"
    yield "  http-request use-service prometheus-exporter if { path /metrics }"
    yield "  http-request return status 404"
    yield ""


def _has_names(snapshot: RolloutSnapshot) -> bool:
    return not all(_is_address(server) for server in (*snapshot.settings.servers, *snapshot.settings.grpc_servers))


def _is_address(server: str) -> bool:
    try:
        ipaddress.ip_address(server.rpartition(":")[0].strip("[]"))
    except ValueError:
        return False
    return True


def _name_server(index: int) -> str:
    return f"server{index + 1}"
