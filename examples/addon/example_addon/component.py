"""The TFX component of SizeGate. TFX's decorator reads the annotations, so they must not be postponed."""

from tfx.dsl.component.experimental.annotations import InputArtifact, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.dsl.io import fileio
from tfx.types.standard_artifacts import Model

from components.base.errors import GateError


@component
def SizeGate(model: InputArtifact[Model], max_mb: Parameter[float]) -> None:  # noqa: N802
    """Raise a GateError, which ends the run as rejected, if the files of the SavedModel are too large."""
    folders = fileio.walk(f"{model.uri}/Format-Serving")
    size = sum(fileio.open(f"{folder}/{name}", "rb").size() for folder, _, names in folders for name in names) / 1e6
    if size > max_mb:
        raise GateError(f"size.max_mb: expected at most {max_mb:g} MB, received {size:.2f} MB", "lower model.hidden")
