"""Names of the columns of forecasts that ExampleGen writes and the Evaluator reads."""

NAIVE, SCALE = "seasonal_naive", "seasonal_scale"
"""The seasonal naive forecast of the label, and its mean absolute error in the past of the series."""
