"""Models of Keras 3, which a user's function may build, as a layer of a tf_keras network.

The training loop, checkpoints, warm starts, strategies, calibration and the export work with tf_keras networks, and so
with Keras 3 models without a branch. The layer calls the model without side effects (`stateless_call`), because the
`fit` of Keras 3 does not support several workers.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
import tf_keras

from components.base.errors import InputError
from components.compat.keras3 import list_layers, restart_names, seeds_without_strategy
from components.compat.tensorflow import local_copy
from components.models.inputs import Inputs

_BACKEND = "tensorflow"
_SEED_DISTANCE = 0x9E3779B9
"""Distance of the seeds of two replicas. A large number, because users choose small seeds next to each other."""


def input_layers(inputs: Inputs) -> dict[str, Any]:
    """Create a `keras.Input` of Keras 3 per feature; shape [batch, width], or [batch] if the width is 1.

    Example:
      features = input_layers(inputs)
      hidden = keras.layers.Dense(8)(keras.layers.Reshape((1,))(features["age_z_score"]))
    """
    import keras

    ids = {name: (feature.values, "int64") for name, feature in inputs.ids.items()}
    numbers = {name: (feature.width, "float32") for name, feature in inputs.dense.items()}
    return {
        name: keras.Input(() if width == 1 else (width,), name=name, dtype=dtype)
        for name, (width, dtype) in (ids | numbers).items()
    }


def is_model(network: object) -> bool:
    """Return whether an object is a model of Keras 3."""
    keras = sys.modules.get("keras")
    return keras is not None and isinstance(network, keras.Model)


@contextlib.contextmanager
def building() -> Iterator[None]:
    """Prepare Keras 3 for a function that may build a model with it.

    Layers get the dtype policy of tf_keras, which is `training.precision`, and default names begin with number 0.

    Raises:
      InputError: If Keras 3 is configured for a backend that is not installed.
    """
    # It shares its modules with tf_keras and TensorFlow, so the import takes only 0.1 s more.
    try:
        import keras
    except ImportError as error:
        raise _create_backend_error(error.name) from error
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy(tf_keras.mixed_precision.global_policy().name)
    restart_names()
    try:
        with seeds_without_strategy():
            yield
    finally:
        keras.config.set_dtype_policy(policy)


def wrap(model: Any) -> tf_keras.Model:
    """Return a tf_keras network that computes the same as a Keras 3 model, and trains its variables.

    Args:
      model: A functional `keras.Model`, or a `keras.Sequential` with an Input.

    Raises:
      InputError: If Keras 3 does not use TensorFlow.
    """
    import keras

    if keras.backend.backend() != _BACKEND:
        raise _create_backend_error(keras.backend.backend())
    tensors = {
        tensor.name: tf_keras.Input(tensor.shape[1:], name=tensor.name, dtype=tensor.dtype) for tensor in model.inputs
    }
    return tf_keras.Model(tensors, Keras3Layer(model)(tensors), name="keras3")


def check_mesh(network: tf_keras.Model) -> None:
    """Check that the variables of a network can be divided among the devices of a mesh.

    Raises:
      InputError: If the network contains a Keras 3 model.
    """
    if find_layers(network):
        raise InputError(
            "training.strategy: expected a tf_keras network for a mesh, received a Keras 3 model",
            "choose kind mirrored or multi_worker without a mesh, or build the network with tf_keras",
        )


def find_layers(network: tf_keras.Model) -> list[Keras3Layer]:
    """Return the layers of a network that call a Keras 3 model; several with `training.folds`."""
    return [module for module in network.submodules if isinstance(module, Keras3Layer)]


class _StatelessModel:
    """A Keras 3 model as a function of its variables.

    tf_keras does not look into objects of this class, so it does not save the model a second time.

    Attributes:
      model: The model.
      seeds: Python ids of the variables that hold the state of random generators.
    """

    def __init__(self, model: Any) -> None:
        import keras

        self.model = model
        weights = {id(variable) for variable in model.non_trainable_weights}
        self.seeds = {id(variable) for variable in model.non_trainable_variables if id(variable) not in weights}
        # The argument of a functional model may have any structure, and `inputs` is a flat list.
        self._structure = model.inputs[0] if isinstance(model, keras.Sequential) else model.input

    def call(
        self, trained: list[Any], others: list[Any], features: dict[str, tf.Tensor], training: bool
    ) -> tuple[tf.Tensor, list[Any], list[tf.Tensor]]:
        """Return the output, the new values of the other variables, and the losses of layers."""
        arguments = tf.nest.map_structure(lambda tensor: features[tensor.name], self._structure)
        output, updated, losses = self.model.stateless_call(
            trained, others, arguments, training=training, return_losses=True
        )
        return tf.nest.flatten(output)[0], updated, losses


class Keras3Layer(tf_keras.layers.Layer):  # type: ignore[misc]
    """Calls a Keras 3 model.

    Trained variables are the model's own. Every variable that the model updates itself, such as a moving average of a
    BatchNormalization or the state of a random generator, is replaced by a variable of this layer, which each replica
    of a strategy updates on its own, as tf_keras does. They change in training only.

    Input: a dict of tensors by the names of the model's inputs.
    Output: the output of the model.

    Args:
      model: The model, with a single output.
    """

    def __init__(self, model: Any) -> None:
        # The layers of the model cast by themselves.
        super().__init__(name="model", dtype="float32")
        stateless = _StatelessModel(model)
        self._stateless = stateless
        self._trained = [variable.value for variable in model.trainable_variables]
        self._others = [self._replace(variable) for variable in model.non_trainable_variables]

    @property
    def trainable_weights(self) -> list[tf.Variable]:
        """The variables that training changes."""
        return [*self._trained] if self.trainable else []

    @property
    def non_trainable_weights(self) -> list[tf.Variable]:
        """The other variables."""
        return [*self._others] if self.trainable else [*self._trained, *self._others]

    @property
    def embeddings(self) -> list[tf.Variable]:
        """The tables of the model's Embedding layers."""
        import keras

        layers = list_layers(self._stateless.model)
        return [layer.embeddings.value for layer in layers if isinstance(layer, keras.layers.Embedding)]

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def call(self, features: dict[str, tf.Tensor], training: bool | None = None) -> tf.Tensor:
        """Return the output of the model."""
        seeds = self._stateless.seeds
        replaced = self._stateless.model.non_trainable_variables
        distance = tf.cast(_find_replica(), tf.int64) * [_SEED_DISTANCE, 0]
        other_values = [
            tf.cast(variable + distance, template.dtype) if id(template) in seeds else tf.convert_to_tensor(variable)
            for variable, template in zip(self._others, replaced, strict=True)
        ]
        trained = [local_copy(variable) for variable in self._trained]
        output, updated, losses = self._stateless.call(trained, other_values, features, bool(training))
        for loss in losses:
            self.add_loss(tf.reduce_sum(tf.cast(loss, tf.float32)))
        if training:
            for variable, template, before, after in zip(self._others, replaced, other_values, updated, strict=True):
                if after is not before:
                    offset = distance if id(template) in seeds else 0
                    variable.assign(tf.cast(after, variable.dtype) - offset)
        return output

    def _replace(self, template: Any) -> tf.Variable:
        """Return a variable with the value of one that is not trained."""
        if template.value.trainable:
            return template.value  # A weight of a layer that is frozen, which nothing updates.
        dtype = tf.as_dtype(template.dtype)
        is_float = dtype.is_floating
        return self.add_weight(
            template.path,
            template.shape,
            dtype if is_float else tf.int64,  # Checkpoints and collective operations support int64, not uint32.
            lambda _shape, dtype=None, **_: tf.cast(template.value, dtype),
            trainable=False,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.MEAN if is_float else tf.VariableAggregation.ONLY_FIRST_REPLICA,
            experimental_autocast=False,
        )


def _find_replica() -> tf.Tensor | int:
    """Return the number of this replica of the strategy."""
    context = tf.distribute.get_replica_context()
    return 0 if context is None else context.replica_id_in_sync_group


def _create_backend_error(backend: str | None) -> InputError:
    return InputError(
        f"model.build: expected Keras with the backend {_BACKEND}, received {backend}",
        f"set KERAS_BACKEND={_BACKEND}, or remove KERAS_BACKEND and the backend in ~/.keras/keras.json",
    )
