"""Render Istio's VirtualService and DestinationRule, and KServe's InferenceService, with the weights of the rollout."""

from __future__ import annotations

import json
from typing import Any

import yaml

from components.pusher.rollout.snapshot import RolloutSnapshot

_HEAD = "# Written from registry.json with every change of it; don't edit.\n"


def render_virtual_service(snapshot: RolloutSnapshot) -> str:
    """Return Istio's VirtualService and DestinationRule as YAML.

    They split requests by weight between the pods labelled `track: stable` and `track: canary`; see deploy/kubernetes.
    """
    host = snapshot.settings.service(snapshot.name)
    stable, canary = snapshot.weights
    to_canary = {"destination": {"host": host, "subset": "canary"}}
    to_stable = {"destination": {"host": host, "subset": "stable"}}
    retries = {"attempts": 2, "perTryTimeout": "5s", "retryOn": "connect-failure,refused-stream,unavailable,503"}
    by_weight = [{**to_stable, "weight": stable}, {**to_canary, "weight": canary}] if canary else [to_stable]
    always = {"match": [{"headers": {"x-canary": {"exact": "always"}}}], "route": [to_canary], "retries": retries}
    subsets = [{"name": track, "labels": {"track": track}} for track in ("stable", "canary")]
    outliers = {"consecutive5xxErrors": 5, "interval": "5s", "baseEjectionTime": "30s"}
    return _render_documents(
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


def render_inference_service(snapshot: RolloutSnapshot) -> str:
    """Return KServe's InferenceService as YAML.

    KServe sends a share of the requests to the newest revision, and the remaining requests to the previous revision.
    The newest revision loads the canary if one exists, otherwise the stable version. The version is set by a file in
    `rollout/versions/`, because KServe would load the greatest number by default.
    """
    # KServe names Azure's containers by their https:// address.
    in_bucket = snapshot.base_path.startswith(("gs://", "s3://"))
    uri = snapshot.settings.storage_uri or (snapshot.base_path if in_bucket else f"pvc://models/{snapshot.name}")
    newest = snapshot.canary.version if snapshot.canary else snapshot.stable
    file = "models-stable.config" if newest is None else f"versions/{newest}.config"
    predictor: dict[str, Any] = {
        "minReplicas": 1,
        # KServe only accepts whole percents. Round small shares up to 1, because 0 would disable the canary.
        **({"canaryTrafficPercent": max(1, round(snapshot.canary.percent))} if snapshot.canary else {}),
        "model": {
            "modelFormat": {"name": "tensorflow"},
            "storageUri": uri,
            "args": [f"--model_config_file=/mnt/models/rollout/{file}"],
        },
    }
    return _render_documents(
        {
            "apiVersion": "serving.kserve.io/v1beta1",
            "kind": "InferenceService",
            "metadata": {"name": snapshot.settings.service(snapshot.name)},
            "spec": {"predictor": predictor},
        }
    )


def _render_documents(*documents: dict[str, Any]) -> str:
    # Copy the documents through JSON: PyYAML would write an object that occurs twice as an alias.
    plain = [json.loads(json.dumps(document)) for document in documents]
    return _HEAD + "---\n".join(yaml.safe_dump(document, sort_keys=False) for document in plain)
