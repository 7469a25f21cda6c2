"""Private parts of Keras 3, on its TensorFlow backend. The project itself uses tf_keras, which is Keras 2."""

from __future__ import annotations

import concurrent.futures
import contextlib
from collections.abc import Callable, Iterator
from typing import Any


def restart_names() -> None:
    """Restart the numbers in the default names of layers, such as `dense_1`.

    The names of variables contain them, and a warm start compares these names. `keras.utils.clear_session` would also
    reset settings that the user's module has made. Checked with Keras 3.3 and 3.15.
    """
    from keras.src.utils import naming

    naming.reset_uids()


def list_layers(model: Any) -> list[Any]:
    """Return all layers of a keras.Model, also those inside other layers.

    The public `layers` of a model does not list the layers that a layer has as attributes. Checked with Keras 3.3 and
    3.15.
    """
    return list(model._flatten_layers(include_self=False, recursive=True))


@contextlib.contextmanager
def seeds_without_strategy() -> Iterator[None]:
    """Create the variables of seeds in the block, which are uint32, outside of the strategy of tf.distribute.

    MultiWorkerMirroredStrategy sends the initial value of every variable to all workers, and its collective operations
    do not support uint32. Strategies are bound to a thread, so another thread creates the variable. Checked with
    TensorFlow 2.16 and 2.21.
    """
    import tensorflow as tf

    def create(next_creator: Callable[..., tf.Variable], **options: Any) -> tf.Variable:
        value = options["initial_value"]
        dtype = options.get("dtype") or getattr(value, "dtype", None)
        if dtype is None or tf.as_dtype(dtype) != tf.uint32:
            return next_creator(**options)
        with concurrent.futures.ThreadPoolExecutor(max_workers=1) as thread:
            return thread.submit(tf.Variable, value, trainable=False, name=options.get("name"), dtype=dtype).result()

    with tf.variable_creator_scope(create):
        yield
