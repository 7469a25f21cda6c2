"""Private parts of TensorFlow and tf_keras, and the environment of every process that imports TensorFlow."""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import numpy.typing as npt
    import tensorflow as tf
    import tf_keras

T = TypeVar("T")

LEGACY_KERAS = {"TF_USE_LEGACY_KERAS": "1"}
"""Makes tf.keras tf_keras on both release lines, if it is set before TensorFlow's first import."""
GROWING_GPU_MEMORY = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}
"""Makes every process allocate a GPU's memory as it needs it, if it is set before the process's first op.

By default the first process that uses a GPU allocates all of its memory, and the next one fails: two training tasks on
one GPU, but also the Evaluator beside the serving check, or a training beside a model server. Checked with TensorFlow
2.21 on an H200."""
ENVIRONMENT = {**LEGACY_KERAS, **GROWING_GPU_MEMORY, "TF_CPP_MIN_LOG_LEVEL": "1", "PYTHONUNBUFFERED": "1"}
"""For every process that imports TensorFlow."""
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONWARNINGS": "ignore::FutureWarning"}
"""Suppresses warnings about missing GPUs, and those of Google's libraries about the version of Python."""

_OPTIONAL = ("keras", "tf_keras", "googleapiclient", "dill", "h5py", "scipy")
"""Packages that `import tensorflow` imports if they are installed, for training, TPUs and Keras' files."""


def import_for_predictions() -> None:
    """Import TensorFlow as if _OPTIONAL were not installed, which takes a third less time.

    For processes that only load and run SavedModels. TensorFlow catches the ImportError of each of these packages, and
    they can be imported afterwards. Checked with TensorFlow 2.16.
    """
    left_out = [name for name in _OPTIONAL if name not in sys.modules]
    sys.modules.update(dict.fromkeys(left_out))  # type: ignore[arg-type]  # None: not installed
    try:
        import tensorflow  # noqa: F401
    finally:
        for name in left_out:
            del sys.modules[name]


def set_environment() -> None:
    """Set ENVIRONMENT in this process, before TensorFlow is imported; values that the user has set remain."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def local_copy(variable: tf.Variable) -> tf.Variable:
    """Return this replica's component of a mirrored variable, to gather some of its rows; other variables unchanged.

    tf.gather and tf.nn.embedding_lookup read all of a mirrored variable before they gather rows: it has no public
    sparse read. `DistributedVariable._get` returns the component. Checked with TensorFlow 2.16 and 2.21.
    """
    return variable._get() if hasattr(variable, "_get") else variable


def adam_slots(optimizer: tf_keras.optimizers.Adam, variable: tf.Variable) -> tuple[tf.Variable, tf.Variable]:
    """Return the first and second moment of a variable in an Adam optimizer that is built, shaped like the variable.

    tf_keras keeps them in private lists, in the order of `_index_dict`. Checked with tf_keras 2.16 and 2.21.
    """
    index = optimizer._index_dict[optimizer._var_key(variable)]
    return optimizer._momentums[index], optimizer._velocities[index]


class ShardedVariable:
    """A variable in parts, which a layer of tf_keras may have: it lists the parts as its weights.

    tf_keras recognizes it by the name of a base class (`base_layer_utils.is_split_variable`). TensorFlow's own
    ShardedVariable is divided along the first axis only. Checked with tf_keras 2.16 and 2.21.

    Attributes:
      variables: The parts.
    """

    def __init__(self, variables: Sequence[tf.Variable]) -> None:
        self.variables = tuple(variables)

    def __iter__(self) -> Iterator[tf.Variable]:
        return iter(self.variables)


def dispatchable(kind: type[T]) -> type[T]:
    """Decorate a class by which functions of TensorFlow may be dispatched (tf.experimental.dispatch_for_api).

    Otherwise dispatch_for_api accepts a class that is no CompositeTensor and never calls the function. There is only
    the private `dispatch.register_dispatchable_type`. Checked with TensorFlow 2.16 and 2.21.
    """
    from tensorflow.python.util import dispatch

    return dispatch.register_dispatchable_type(kind)  # type: ignore[no-any-return]


class _CountedFunction:
    """A function, and how many of its calls have begun and ended."""

    def __init__(self, function: Callable[..., Sequence[npt.NDArray[Any]]]) -> None:
        self.function = function
        self.begun = self.ended = 0

    def __call__(self, *inputs: Any) -> Sequence[npt.NDArray[Any]]:
        self.begun += 1
        try:
            return self.function(*inputs)
        finally:
            self.ended += 1


_FUNCTIONS: dict[str, _CountedFunction] = {}
_QUIET_SECONDS = 0.1


def register_py_function(name: str, function: Callable[..., Sequence[npt.NDArray[Any]]]) -> None:
    """Make a function callable by `call_py_function` from graphs that run in this process.

    The functions of tf.py_function and tf.numpy_function can only be called in the process that has traced the graph:
    their names are counted there. A graph that a coordinator traces for the workers of a ParameterServerStrategy needs
    a name that each worker has registered, and `script_ops._py_funcs` has no public way to choose it. Checked with
    TensorFlow 2.16 and 2.21.

    Args:
      name: The same in all processes.
      function: Takes NumPy arrays or scalars, returns a list of arrays.
    """
    from tensorflow.python.ops import script_ops

    if not _FUNCTIONS:
        atexit.register(_await_py_functions)
    if name not in _FUNCTIONS or _FUNCTIONS[name].function is not function:
        # TensorFlow has a weak reference only.
        script_ops._py_funcs._funcs[name] = _FUNCTIONS[name] = _CountedFunction(function)


def call_py_function(name: str, inputs: Sequence[tf.Tensor], dtypes: Sequence[tf.DType]) -> list[tf.Tensor]:
    """Call a registered function in the process that runs this op.

    Args:
      name: Of `register_py_function`.
      inputs: Its arguments; a text arrives as bytes.
      dtypes: The dtypes of the arrays that it returns.

    Returns:
      Tensors of unknown shape. An exception of the function becomes a tf.errors.OpError with its text.
    """
    import tensorflow as tf

    return list(tf.raw_ops.PyFunc(input=list(inputs), token=name, Tout=list(dtypes)))


def _await_py_functions() -> None:
    """Wait until tf.data's threads call no function any more: they do so until their buffers are full.

    A thread that calls a function while the interpreter is finalized ends inside the call, and the destructor of its
    iterator waits for it without end.
    """
    seen = -1
    while (begun := sum(each.begun for each in _FUNCTIONS.values())) != seen or _running():
        seen = begun
        time.sleep(_QUIET_SECONDS)


def _running() -> bool:
    return any(each.begun != each.ended for each in _FUNCTIONS.values())


def leave_unconverted(*packages: str) -> None:
    """Let AutoGraph call the functions of packages in this process as they are, as it calls those of keras.

    AutoGraph knows keras by its name, and not tf_keras: it would convert hundreds of functions that need no conversion,
    which takes ten seconds at the first `fit`. Of this project it would convert the functions of input pipelines and
    layers, which have no Python control flow on tensors, in a second. What a layer of another package does in its
    `call` is converted all the same. Checked with TensorFlow 2.16.

    Args:
      packages: Names of packages, such as tf_keras.
    """
    from tensorflow.python.autograph.core import config

    for package in packages:
        rule = config.DoNotConvert(package)
        if not any(str(each) == str(rule) for each in config.CONVERSION_RULES):
            config.CONVERSION_RULES = (rule, *config.CONVERSION_RULES)


def clone_lambda_layers() -> None:
    """Allow tf_keras to copy models with Lambda layers in this process.

    Copies are made by way of a layer's config, and tf_keras refuses to make a function from a config: a file might
    have it. Here the configs come from models of this process. Checked with tf_keras 2.16.
    """
    import tf_keras

    tf_keras.__internal__.enable_unsafe_deserialization()


def load_graph(session: tf.compat.v1.Session, folder: str) -> Any:
    """Load a SavedModel into a session as tf.compat.v1.saved_model.load does, without holding the GIL for long.

    Hook: TensorFlow imports the graph and all of its functions in one call, which holds the GIL and infers the shapes
    of every function that is called: of 6.3 CPU-seconds for a model of 15 MB, other threads wait 4.1 at a time. With
    one function after the other, added after the graph, it takes 1.4 CPU-seconds, and other threads wait 0.4. Checked
    with TensorFlow 2.16.

    Args:
      session: Of an empty graph.
      folder: Of the SavedModel.

    Returns:
      The MetaGraphDef, without the functions.

    Raises:
      Exception: TensorFlow's errors for a folder that is not a SavedModel.
    """
    from tensorflow.python.framework import function
    from tensorflow.python.saved_model import loader_impl

    tags = ["serve"]
    loader = loader_impl.SavedModelLoader(folder)
    meta_graph = loader.get_meta_graph_def_from_tags(tags)
    functions = function.from_library(meta_graph.graph_def.library)
    meta_graph.graph_def.ClearField("library")
    with session.graph.as_default():
        saver, _ = loader.load_graph(session.graph, tags)
        for each in functions:
            each.add_to_graph(session.graph)
        loader.restore_variables(session, saver)
        loader.run_init_ops(session, tags)
    return meta_graph
