"""Reads a variable from a ps of this process; must run before any TensorFlow operation."""

from __future__ import annotations

import socket


def main(size: int, reads: int) -> tuple[int, int]:
    """Return the bytes that this process sends and receives while it reads a variable of this size so many times."""
    import tensorflow as tf

    from components.trainer.cluster.traffic import Traffic

    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    cluster = tf.train.ClusterSpec({"ps": [address]})
    traffic = Traffic()
    server = tf.distribute.Server(cluster, job_name="ps", task_index=0, protocol="grpc")
    tf.config.experimental_connect_to_host(address, job_name="ps")
    with tf.device("/job:ps/task:0"):
        variable = tf.Variable(tf.random.uniform([size // 4]))
    # Warm up, so that the connection and the kernels exist.
    with tf.device("/job:localhost"):
        tf.identity(variable).numpy()
        sent, received = traffic.measure()
        for _ in range(reads):
            tf.identity(variable).numpy()
    now_sent, now_received = traffic.measure()
    del server
    return now_sent - sent, now_received - received
