"""A model server for checks, trials and tests that speaks TensorFlow Serving's two APIs; production is TF Serving's."""
