"""The memory of the devices of a mesh, as custom properties of a ModelRun."""

from __future__ import annotations

DEVICES, LARGEST = "mesh_devices", "mesh_device_mb"
"""Names of the properties: the number of devices, and the weights, gradients and moments of the device that needs most,
in MB."""
