"""Dataflow: each node that runs on Beam is a job in Google Cloud, with workers of its own."""

from __future__ import annotations

from pipeline.config.engines import DataflowConfig
from pipeline.engines.engine import Engine

_SHUFFLE = {"service": "service", "workers": "appliance"}


class Dataflow(Engine[DataflowConfig]):
    """Google Cloud. Nothing that costs or opens something is left to a default of Beam's."""

    def options(self, section: DataflowConfig) -> list[str]:
        """All that a job in Google Cloud is told."""
        staging = section.staging_location or f"{section.temp_location.rstrip('/')}/staging"
        given = {
            "runner": "DataflowRunner",
            "project": section.project,
            "region": section.region,
            "temp_location": section.temp_location,
            "staging_location": staging,
            "sdk_container_image": section.image,
            # The image has Beam already: what is staged is the job alone.
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
            *(f"--{name}={value}" for name, value in given.items() if value is not None),
            "--use_public_ips" if section.public_ips else "--no_use_public_ips",
            "--experiments=use_runner_v2",
            f"--experiments=shuffle_mode={_SHUFFLE[section.shuffle]}",
            *(f"--labels={name}={value}" for name, value in section.labels.items()),
            *(f"--dataflow_service_options={option}" for option in section.service_options),
        ]

    def told(self, section: DataflowConfig) -> str:
        """Where, how many machines of which kind, and whether the internet can reach them."""
        workers = f"up to {section.max_workers}" if section.autoscaling else str(section.workers)
        return (
            f"project {section.project} in {section.region}, {workers} {section.machine_type} with {section.image}, "
            f"{'public' if section.public_ips else 'private'} addresses"
        )

    def reads_this_disk(self, section: DataflowConfig) -> bool:
        """Never."""
        return False
