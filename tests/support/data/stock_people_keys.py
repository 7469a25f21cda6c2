"""A helper in the folder of a stock TFX module file, like the template's `features.py`."""

NUMBER, LABEL = "hours", "income"


def transformed_name(name: str) -> str:
    """Return the name of a transformed feature."""
    return f"{name}_xf"
