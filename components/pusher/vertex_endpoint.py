"""Deploy a pushed version to a Vertex AI endpoint with the client of TFX's Vertex AI Pusher."""

from __future__ import annotations

from components.pusher.config import VertexConfig


def deploy(config: VertexConfig, uri: str, number: int) -> str:
    """Upload a model, deploy it to the endpoint, and wait for both; create the endpoint if it does not exist.

    Args:
      config: The endpoint.
      uri: Folder of the version, a gs:// URL.
      number: Number of the version.

    Returns:
      Resource name of the deployed model.
    """
    # Imported here because the import takes seconds, and few runs need it.
    from tfx.extensions.google_cloud_ai_platform import runner

    return str(
        runner.deploy_model_for_aip_prediction(
            serving_path=uri,
            model_version_name=f"v{number}",
            ai_platform_serving_args={
                "project_id": config.project,
                "endpoint_name": config.endpoint,
                "machine_type": config.machine_type,
                "min_replica_count": config.min_replicas,
                "max_replica_count": config.max_replicas,
                "traffic_percentage": config.traffic_percent,
            },
            labels={},
            serving_container_image_uri=config.image,
            endpoint_region=config.region,
            enable_vertex=True,
        )
    )
