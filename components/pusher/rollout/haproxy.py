"""HAProxy's configuration: requests that name no version go to the stable one or to the canary, by weight."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

from components.pusher.rollout.view import View

_GLOBAL = """\
# Written from registry.json with every change of it; don't edit. HAProxy reads it anew at SIGUSR2 (started with -W).
global
  maxconn 2000
  # A request is sent to another server only as long as all of it is in this buffer.
  tune.bufsize 131072

defaults
  mode http
  timeout connect 1s
  timeout client 30s
  timeout server 30s
  timeout check 2s
  timeout http-request 10s
  # One lost server costs no request: what it did not answer is asked of another one. A prediction may be asked twice.
  # 404 is what a server says that has not loaded the version yet; only a whole request can be sent again.
  option http-buffer-request
  retries 3
  option redispatch 1
  retry-on conn-failure empty-response junk-response 404 503
"""


def config(view: View) -> str:
    """The configuration for the whole rollout."""
    return "\n".join([_GLOBAL, *_resolvers(view), *_rest(view), *_grpc(view), *_metrics(view)])


def _resolvers(view: View) -> Iterator[str]:
    if _has_names(view):
        # A container that is made anew has another address under its old name.
        yield "resolvers system"
        yield "  parse-resolv-conf"
        yield "  hold valid 5s"
        yield ""


def _rest(view: View) -> Iterator[str]:
    yield "frontend rest"
    yield f"  bind {view.settings.listen}"
    name = re.escape(view.name)
    yield f"  acl unversioned path_reg ^/v1/models/{name}:(predict|classify|regress)$"
    yield "  http-request set-var(txn.label) str(stable) if unversioned"
    if view.canary:
        weights = view.weights
        # Chosen only while a server holds it: it may still be loading.
        canary = "  http-request set-var(txn.label) str(canary) if unversioned { nbsrv(canary) gt 0 }"
        yield f"{canary} {{ rand({sum(weights)}) lt {weights[1]} }}"
        yield f"{canary} {{ req.hdr(x-canary) -m str always }}"
    rewritten = rf"/v1/models/{view.name}/labels/%[var(txn.label)]:\1"
    yield f"  http-request replace-path ^/v1/models/{name}:(predict|classify|regress)$ {rewritten} if unversioned"
    if view.canary:
        yield "  use_backend canary if { var(txn.label) -m str canary }"
    yield "  default_backend stable"
    yield ""
    for label in ("stable", "canary") if view.canary else ("stable",):
        yield f"backend {label}"
        yield from _check(view, label)
        for at, server in enumerate(view.settings.servers):
            yield f"  server {_named(at)} {server}"
        yield ""


def _grpc(view: View) -> Iterator[str]:
    if not view.settings.grpc_servers:
        return
    # The label is in the message, where HAProxy does not look: clients name it, so there are no weights here.
    yield "frontend grpc"
    yield f"  bind {view.settings.listen_grpc} proto h2"
    yield "  default_backend grpc"
    yield ""
    yield "backend grpc"
    yield from _check(view, "stable")
    for at, (server, checked) in enumerate(zip(view.settings.grpc_servers, view.settings.servers, strict=True)):
        # The status is asked for by REST, on the same host.
        port = checked.rpartition(":")[2]
        yield f"  server {_named(at)} {server} proto h2 check-proto h1 port {port}"
    yield ""


def _check(view: View, label: str) -> Iterator[str]:
    yield "  balance roundrobin"
    yield "  option httpchk"
    yield f"  http-check send meth GET uri /v1/models/{view.name}/labels/{label}"
    yield "  http-check expect string '\"AVAILABLE\"'"
    named = " resolvers system init-addr last,libc,none" if _has_names(view) else ""
    yield f"  default-server check inter 500ms fall 2 rise 1{named}"


def _metrics(view: View) -> Iterator[str]:
    yield "frontend metrics"
    yield f"  bind {view.settings.listen_metrics}"
    yield "  no log"
    yield "  http-request use-service prometheus-exporter if { path /metrics }"
    yield "  http-request return status 404"
    yield ""


def _has_names(view: View) -> bool:
    return not all(_is_address(server) for server in (*view.settings.servers, *view.settings.grpc_servers))


def _is_address(server: str) -> bool:
    try:
        ipaddress.ip_address(server.rpartition(":")[0].strip("[]"))
    except ValueError:
        return False
    return True


def _named(at: int) -> str:
    return f"server{at + 1}"
