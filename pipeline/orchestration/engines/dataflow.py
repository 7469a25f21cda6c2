"""Dataflow: each node that runs on Beam is a job in Google Cloud with separate workers."""

from __future__ import annotations

from pipeline.authoring.config.runtime import DataflowConfig
from pipeline.orchestration.engines.base import Engine

_SHUFFLE = {"service": "service", "workers": "appliance"}


class Dataflow(Engine[DataflowConfig]):
    """Google Cloud's engine.

    Options that affect cost or network access are always set, so that they do not depend on Beam's defaults.
    """

    def options(self, section: DataflowConfig) -> list[str]:
        """Return all options of a job in Google Cloud."""
        staging = section.staging_location or f"{section.temp_location.rstrip('/')}/staging"
        values = {
            "runner": "DataflowRunner",
            "project": section.project,
            "region": section.region,
            "temp_location": section.temp_location,
            "staging_location": staging,
            "sdk_container_image": section.image,
            # Beam is already installed in the image, so only the job is staged.
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
        """Return project, region, number and type of the machines, and whether their addresses are public."""
        workers = f"up to {section.max_workers}" if section.autoscaling else str(section.workers)
        return (
            f"project {section.project} in {section.region}, {workers} {section.machine_type} with {section.image}, "
            f"{'public' if section.public_ips else 'private'} addresses"
        )

    def reads_this_disk(self, section: DataflowConfig) -> bool:
        """Return False."""
        return False
