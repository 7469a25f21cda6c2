"""Reads what TensorBoard's pages show of a training: its embeddings and its graph."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

_SECONDS = 60.0


def read(folder: Path) -> dict[str, Any]:
    """Start TensorBoard and request the data of the projector and of the graph; call it in a new process.

    Args:
      folder: Folder of the ModelRun, with `train` and `checkpoints`.

    Returns:
      `graph`: whether there is a graph; `embeddings`: name → its `labels`, its `vectors`, and whether all of them are
      rows of a table in the last checkpoint, `stored`.
    """
    import numpy as np
    import requests
    import tensorflow as tf
    from tensorboard import program

    from components.trainer import checkpoint

    server = program.TensorBoard()
    server.configure(argv=["tensorboard", "--logdir", str(folder), "--port", "0", "--load_fast=false"])
    url = f"{server.launch()}data/plugin"

    def get(path: str) -> requests.Response:
        return requests.get(f"{url}/{path}", timeout=_SECONDS)

    deadline = time.monotonic() + _SECONDS
    # TensorBoard loads the events in a thread and does not tell when it has ended.
    while "train" not in get("projector/runs").json() or not get("graphs/info").json().get("train"):
        if time.monotonic() > deadline:
            raise TimeoutError(f"TensorBoard shows no projector and graph of {folder}")
        time.sleep(0.2)
    path = checkpoint.path(str(folder / "checkpoints"), checkpoint.newest(str(folder / "checkpoints")))
    reader = tf.train.load_checkpoint(path)
    tables = [reader.get_tensor(name) for name, shape in reader.get_variable_to_shape_map().items() if len(shape) == 2]
    rows = {row.tobytes() for table in tables for row in table}
    embeddings = {}
    for embedding in get("projector/info?run=train").json()["embeddings"]:
        query = f"run=train&name={embedding['tensorName']}"
        vectors = np.frombuffer(get(f"projector/tensor?{query}").content, np.float32)
        vectors = vectors.reshape(embedding["tensorShape"])
        embeddings[embedding["tensorName"]] = {
            "labels": get(f"projector/metadata?{query}").text.splitlines(),
            "vectors": vectors,
            "stored": {row.tobytes() for row in vectors} <= rows,
        }
    return {"graph": get("graphs/info").json()["train"]["run_graph"], "embeddings": embeddings}
