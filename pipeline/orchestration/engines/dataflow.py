"""Dataflow: each node that runs on Beam is a job in Google Cloud, with workers of its own."""

from __future__ import annotations

from pipeline.authoring.config.runtime import DataflowConfig
from pipeline.orchestration.engines.base import Engine

_SHUFFLE = {"service": "service", "workers": "appliance"}


class Dataflow(Engine[DataflowConfig]):
    """Google Cloud. Every option that affects cost or network access is set explicitly, not left to Beam's default."""

    def options(self, section: DataflowConfig) -> list[str]:
        """All options of a job in Google Cloud."""
        staging = section.staging_location or f"{section.temp_location.rstrip('/')}/staging"
        values = {
            "runner": "DataflowRunner",
            "project": section.project,
            "region": section.region,
            "temp_location": section.temp_location,
            "staging_location": staging,
            "sdk_container_image": section.image,
            # The image has Beam already: only the job is staged.
            "sdk_location": "container",
            "worker_machine_type": section.machine_type,
            "disk_size_gb": section.disk_gb,
            "num_workers": section.workers,
            "max_num_workers": section.max_workers,
            "autoscaling_algorithm": "THROUGHPUT_BASED" if section.autoscaling else "NONE",
            "network": section.network,
            "subnetwork": section.subnetwork,
            "service_account_email": section.service_account,
        }
        return [
            *(f"--{name}={value}" for name, value in values.items() if value is not None),
            "--use_public_ips" if section.public_ips else "--no_use_public_ips",
            "--experiments=use_runner_v2",
            f"--experiments=shuffle_mode={_SHUFFLE[section.shuffle]}",
            *(f"--labels={name}={value}" for name, value in section.labels.items()),
            *(f"--dataflow_service_options={option}" for option in section.service_options),
        ]

    def describe(self, section: DataflowConfig) -> str:
        """Project and region, number and type of the machines, and whether they have public addresses."""
        workers = f"up to {section.max_workers}" if section.autoscaling else str(section.workers)
        return (
            f"project {section.project} in {section.region}, {workers} {section.machine_type} with {section.image}, "
            f"{'public' if section.public_ips else 'private'} addresses"
        )

    def reads_this_disk(self, section: DataflowConfig) -> bool:
        """Never."""
        return False
