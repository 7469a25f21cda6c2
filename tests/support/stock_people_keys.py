"""What lies beside a module file of stock TFX, as the template's `features.py` does."""

NUMBER, LABEL = "hours", "income"


def transformed(name: str) -> str:
    """Return the name of a transformed feature."""
    return f"{name}_xf"
