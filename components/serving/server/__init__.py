"""A model server with TensorFlow Serving's REST and gRPC APIs, for the serving check and for trials on one machine."""
