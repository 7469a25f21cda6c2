"""Istio's VirtualService and DestinationRule, and KServe's InferenceService, with the rollout's weights."""

from __future__ import annotations

import json
from typing import Any

import yaml

from components.pusher.rollout.view import View

_HEAD = "# Written from registry.json with every change of it; don't edit.\n"


def virtual_service(view: View) -> str:
    """Requests by weight to the pods labelled `track: stable` and `track: canary`; see deploy/kubernetes."""
    host = _name(view)
    stable, canary = view.weights
    to_canary = {"destination": {"host": host, "subset": "canary"}}
    to_stable = {"destination": {"host": host, "subset": "stable"}}
    retries = {"attempts": 2, "perTryTimeout": "5s", "retryOn": "connect-failure,refused-stream,unavailable,503"}
    by_weight = [{**to_stable, "weight": stable}, {**to_canary, "weight": canary}] if canary else [to_stable]
    always = {"match": [{"headers": {"x-canary": {"exact": "always"}}}], "route": [to_canary], "retries": retries}
    subsets = [{"name": track, "labels": {"track": track}} for track in ("stable", "canary")]
    outliers = {"consecutive5xxErrors": 5, "interval": "5s", "baseEjectionTime": "30s"}
    return _documents(
        {
            "apiVersion": "networking.istio.io/v1",
            "kind": "VirtualService",
            "metadata": {"name": host},
            "spec": {
                "hosts": [host],
                "http": [*([always] if canary else []), {"route": by_weight, "retries": retries}],
            },
        },
        {
            "apiVersion": "networking.istio.io/v1",
            "kind": "DestinationRule",
            "metadata": {"name": host},
            "spec": {"host": host, "trafficPolicy": {"outlierDetection": outliers}, "subsets": subsets},
        },
    )


def inference_service(view: View) -> str:
    """KServe sends a share of the requests to the newest revision, and the rest to the one before.

    The revision that is newest holds the canary, or the stable version where there is none. `latest` in KServe means
    the greatest number, so the version is given by a file under `rollout/versions/`.
    """
    uri = view.settings.storage_uri or f"pvc://models/{view.name}"
    newest = view.canary.version if view.canary else view.stable
    file = "models-stable.config" if newest is None else f"versions/{newest}.config"
    predictor: dict[str, Any] = {
        "minReplicas": 1,
        # A whole number for KServe: any canary gets at least one percent.
        **({"canaryTrafficPercent": max(1, round(view.canary.percent))} if view.canary else {}),
        "model": {
            "modelFormat": {"name": "tensorflow"},
            "storageUri": uri,
            "args": [f"--model_config_file=/mnt/models/rollout/{file}"],
        },
    }
    return _documents(
        {
            "apiVersion": "serving.kserve.io/v1beta1",
            "kind": "InferenceService",
            "metadata": {"name": _name(view)},
            "spec": {"predictor": predictor},
        }
    )


def _name(view: View) -> str:
    """A name that Kubernetes takes."""
    return view.settings.host or view.name.lower().replace("_", "-").replace(".", "-")


def _documents(*documents: dict[str, Any]) -> str:
    # By way of JSON, since YAML would write what stands twice as a reference.
    plain = [json.loads(json.dumps(document)) for document in documents]
    return _HEAD + "---\n".join(yaml.safe_dump(document, sort_keys=False) for document in plain)
