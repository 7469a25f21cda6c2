"""The private parts of TensorFlow and tf_keras in components.compat.tensorflow still exist in the installed version."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from tensorflow.python.autograph.impl import conversion
from tensorflow.python.ops import script_ops

from components.compat.tensorflow import (
    GROWING_GPU_MEMORY,
    LEGACY_KERAS,
    ShardedVariable,
    call_py_function,
    clone_lambda_layers,
    dispatchable,
    is_functional,
    leave_unconverted,
    list_calls,
    local_copy,
    optimizer_slots,
    register_py_function,
    variables_without_values,
)
from tests.support.servers.in_fork_server import in_child


def test_local_copy_of_a_mirrored_variable_is_one_component() -> None:
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        variable = tf.Variable([1.0, 2.0])
    assert hasattr(variable, "_get"), "DistributedVariable._get has been renamed"
    component = strategy.run(lambda: local_copy(variable).read_value())
    np.testing.assert_array_equal(component, [1.0, 2.0])
    assert type(local_copy(variable)) is not type(variable)


def test_local_copy_of_a_plain_variable_is_the_variable() -> None:
    variable = tf.Variable([1.0])
    assert local_copy(variable) is variable


def test_variables_without_values_have_a_shape_and_need_no_memory() -> None:
    with variables_without_values():
        layer = tf_keras.layers.Dense(1_000_000)
        layer.build((None, 1_000_000))
    # The values would need 4 TB.
    assert layer.kernel.shape == (1_000_000, 1_000_000)
    assert [weight.name for weight in layer.trainable_weights] == ["kernel:0", "bias:0"]


def test_layer_lists_the_parts_of_a_sharded_variable() -> None:
    def create(next_creator: Any, **options: Any) -> Any:
        return ShardedVariable([next_creator(**options) for _ in range(2)])

    with tf.variable_creator_scope(create):
        layer = tf_keras.layers.Layer()
        weight = layer.add_weight("kernel", (2, 3), initializer="zeros")
    assert isinstance(weight, ShardedVariable), "tf_keras makes variables elsewhere"
    assert [id(variable) for variable in layer.trainable_weights] == [id(variable) for variable in weight], (
        "tf_keras recognizes variables in parts by something else"
    )


def test_function_is_dispatched_by_a_class_that_is_no_tensor() -> None:
    @dispatchable
    class Matrix:
        pass

    @tf.experimental.dispatch_for_api(tf.matmul, {"b": Matrix})
    def product(*_arguments: Any, **_options: Any) -> str:
        return "dispatched"

    try:
        assert tf.matmul(a=tf.ones([1, 1]), b=Matrix()) == "dispatched"
    finally:
        tf.experimental.unregister_dispatch_for(product)


def test_slots_of_adam_are_its_moments() -> None:
    optimizer, variable = tf_keras.optimizers.Adam(0.1), tf.Variable([1.0, 2.0])
    second_variable = tf.Variable([[3.0]])
    optimizer.build([second_variable, variable])
    gradient = tf.constant([0.5, -1.0])
    optimizer.apply_gradients([(tf.zeros([1, 1]), second_variable), (gradient, variable)])
    first, second = optimizer_slots(optimizer, variable)
    message = "tf_keras keeps Adam's moments elsewhere"
    np.testing.assert_allclose(first, 0.1 * gradient, rtol=1e-5, atol=1e-9, err_msg=message)
    np.testing.assert_allclose(second, 0.001 * gradient**2, rtol=1e-5, atol=1e-9, err_msg=message)


@pytest.mark.both_lines
def test_tensorflow_knows_the_variable_with_which_gpu_memory_grows() -> None:
    # Its effect is only visible on a GPU.
    (library,) = Path(tf.__file__).parent.glob("libtensorflow_framework.so.2")
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        for name in GROWING_GPU_MEMORY:
            assert content.find(name.encode()) >= 0


@pytest.mark.parametrize(("name", "value"), GROWING_GPU_MEMORY.items())
@pytest.mark.extended
def test_gpu_memory_grows_in_every_node(tmp_path: Path, name: str, value: str) -> None:
    assert in_child(tmp_path / "node.log", os.getenv, name) == value


LEFT_OUT = """
import sys
from components.compat.tensorflow import _OPTIONAL, import_for_predictions

import_for_predictions()
print(*sorted({*_OPTIONAL} & {*sys.modules}))
import scipy.sparse, tensorflow as tf, tf_keras
print(tf.keras.Model is tf_keras.Model)
"""


@pytest.mark.both_lines
@pytest.mark.extended
def test_optional_packages_are_left_out_of_the_import_and_can_be_imported_later() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", LEFT_OUT],
        env={**os.environ, **LEGACY_KERAS},
        timeout=120,
        check=True,
        capture_output=True,
        text=True,
    )
    nothing, is_tf_keras = ended.stdout.splitlines()
    assert nothing == ""
    assert is_tf_keras == "True", "TF_USE_LEGACY_KERAS no longer selects tf_keras"


def double(text: bytes, number: np.int64) -> list[Any]:
    return [np.array([2 * number]), np.array([text, b"more"], object)]


def test_registered_function_is_called_by_its_name() -> None:
    register_py_function("test.doubled", double)
    assert script_ops._py_funcs.get("test.doubled") is not None, "FuncRegistry._funcs has been renamed"

    def call(number: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return tuple(call_py_function("test.doubled", [tf.constant("text"), number], [tf.int64, tf.string]))

    numbers, texts = call(tf.constant(4, tf.int64))
    assert numbers.numpy().tolist() == [8]
    assert texts.numpy().tolist() == [b"text", b"more"]
    dataset = tf.data.Dataset.range(3).map(call)
    assert [numbers.numpy().tolist() for numbers, _ in dataset] == [[0], [2], [4]]


PROGRAM = """
import time
import numpy as np
import tensorflow as tf
from components.compat.tensorflow import call_py_function, register_py_function

def slow(number):
    time.sleep(0.05)
    return [np.array([number])]

register_py_function("slow", slow)
dataset = tf.data.Dataset.counter().map(lambda number: call_py_function("slow", [number], [tf.int64])[0]).prefetch(4)
iterator = iter(dataset)
next(iterator)
"""


@pytest.mark.extended
def test_process_exits_while_a_thread_calls_a_function() -> None:
    """Without waiting at exit, this program never ends."""
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**os.environ, **LEGACY_KERAS}, timeout=120, check=False
    )
    assert ended.returncode == 0


def test_autograph_leaves_functions_of_a_package_as_they_are() -> None:
    leave_unconverted("tf_keras")
    assert conversion.is_allowlisted(tf_keras.layers.Dense.call)
    assert not conversion.is_allowlisted(double)


def test_models_with_lambda_layers_can_be_copied() -> None:
    clone_lambda_layers()
    features = tf_keras.Input((2,))
    model = tf_keras.Model(features, tf_keras.layers.Lambda(lambda values: 2 * values)(features))
    copy = tf_keras.models.clone_model(model)
    np.testing.assert_array_equal(copy(np.ones((1, 2), np.float32)), [[2, 2]])


def test_calls_of_a_network_are_listed_without_the_calls_of_other_networks() -> None:
    rows = tf_keras.Input((3,), name="rows")
    shared = tf_keras.layers.Dense(3, name="shared")
    once = shared(rows)
    network = tf_keras.Model(rows, tf_keras.layers.Add(name="sum")([shared(once), rows]))
    shared(tf_keras.Input((3,)))
    assert is_functional(network)
    assert not is_functional(shared)
    calls = list(list_calls(network))
    assert [layer.name for layer, _, _ in calls] == ["rows", "shared", "shared", "sum"]
    assert [len(inputs) for _, inputs, _ in calls] == [0, 1, 1, 2]
    assert calls[1][1][0] is rows
    assert calls[2][1][0] is calls[1][2][0] is once
    assert calls[3][2][0] is network.outputs[0]
