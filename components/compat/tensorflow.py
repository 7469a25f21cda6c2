"""Private parts of TensorFlow and tf_keras, and the environment of every process that imports TensorFlow."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    import numpy.typing as npt
    import tensorflow as tf
    import tf_keras

T = TypeVar("T")

LEGACY_KERAS = {"TF_USE_LEGACY_KERAS": "1"}
"""Makes `tf.keras` an alias of tf_keras on both release lines. It must be set before TensorFlow is first imported."""
GROWING_GPU_MEMORY = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}
"""Makes a process allocate GPU memory as it needs it. It must be set before the process runs its first op.

By default, the first process that uses a GPU allocates all of its memory, and the second process fails. This happens
with two training tasks on one GPU, but also if the Evaluator and the serving check, or a training and a model server,
run at the same time. Checked with TensorFlow 2.21 on an H200."""
ENVIRONMENT = {**LEGACY_KERAS, **GROWING_GPU_MEMORY, "TF_CPP_MIN_LOG_LEVEL": "1", "PYTHONUNBUFFERED": "1"}
"""Environment variables for every process that imports TensorFlow."""
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONWARNINGS": "ignore::FutureWarning"}
"""Suppresses TensorFlow's warnings about missing GPUs and the warnings of Google's libraries about old Pythons."""

_OPTIONAL = ("keras", "tf_keras", "googleapiclient", "dill", "h5py", "scipy")
"""Packages for training, TPUs and Keras' file formats, which `import tensorflow` imports if they are installed."""


def import_for_predictions() -> None:
    """Import TensorFlow as if the packages in _OPTIONAL were not installed, which takes a third less time.

    Use it in processes that only load and run SavedModels. TensorFlow catches the ImportErrors of these packages, and
    they can still be imported afterwards. Checked with TensorFlow 2.16.
    """
    left_out = [name for name in _OPTIONAL if name not in sys.modules]
    # If an entry is None, importing the module raises ImportError, as if it were not installed.
    sys.modules.update(dict.fromkeys(left_out))  # type: ignore[arg-type]
    try:
        import tensorflow  # noqa: F401
    finally:
        for name in left_out:
            del sys.modules[name]


def set_environment() -> None:
    """Set the variables in ENVIRONMENT for this process. Variables that the user has set keep their values.

    Call it before TensorFlow is imported.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)


_SLOTS = ("momentums", "_momentums", "_velocities", "_accumulators", "_linears")
"""Attributes of tf_keras' optimizers with a list of variables, which may be missing or empty."""


def local_copy(variable: tf.Variable) -> tf.Variable:
    """Return this replica's component of a mirrored variable, so that single rows can be gathered.

    tf.gather and tf.nn.embedding_lookup read a whole mirrored variable before they gather rows, because it does not
    offer a public sparse read. `DistributedVariable._get` returns the component. Other variables are returned
    unchanged. Checked with TensorFlow 2.16 and 2.21.
    """
    return variable._get() if hasattr(variable, "_get") else variable


def optimizer_slots(optimizer: tf_keras.optimizers.Optimizer, variable: tf.Variable) -> list[tf.Variable]:
    """Return what an optimizer keeps for a variable, such as Adam's first and second moments.

    tf_keras keeps them in private lists, in the order of `_index_dict`. Checked with tf_keras 2.16 and 2.21.

    Args:
      optimizer: The optimizer, which must be built.
      variable: A variable that the optimizer updates.

    Returns:
      Variables with the shape of the variable.
    """
    index = optimizer._index_dict[optimizer._var_key(variable)]
    lists = (getattr(optimizer, name, None) for name in _SLOTS)
    return [slots[index] for slots in lists if slots]


def has_slots(optimizer: tf_keras.optimizers.Optimizer, variable: tf.Variable) -> bool:
    """Return whether an optimizer was built for a variable."""
    return optimizer._var_key(variable) in optimizer._index_dict


def merge_rows(optimizer: tf_keras.optimizers.Optimizer, gradients: Sequence[Any]) -> list[Any]:
    """Return gradients in which each row of a table occurs once, as `apply_gradients` does after clipping."""
    merged: list[Any] = optimizer._deduplicate_sparse_grad(gradients)
    return merged


class ShardedVariable:
    """A variable that consists of parts. A tf_keras layer that has it as an attribute lists the parts as its weights.

    tf_keras recognizes it by the name of the class or of a base class (`base_layer_utils.is_split_variable`).
    TensorFlow's own ShardedVariable can only be divided along the first axis. Checked with tf_keras 2.16 and 2.21.

    Attributes:
      variables: The parts of the variable.
    """

    def __init__(self, variables: Sequence[tf.Variable]) -> None:
        self.variables = tuple(variables)

    def __iter__(self) -> Iterator[tf.Variable]:
        return iter(self.variables)


def dispatchable(kind: type[T]) -> type[T]:
    """Decorate a class so that tf.experimental.dispatch_for_api works for arguments of this class.

    dispatch_for_api also accepts other classes that are not CompositeTensors, but then never calls the function that it
    registers. TensorFlow offers only the private `dispatch.register_dispatchable_type`. Checked with TensorFlow 2.16
    and 2.21.
    """
    from tensorflow.python.util import dispatch

    return dispatch.register_dispatchable_type(kind)  # type: ignore[no-any-return]


@contextlib.contextmanager
def variables_without_values() -> Iterator[None]:
    """Create variables in the block with a shape but without values, so that a network does not need memory for them.

    TensorFlow offers only the private UninitializedVariable, with which it loads SavedModels. Variables without a given
    shape get their values. Checked with TensorFlow 2.16 and 2.21.
    """
    import tensorflow as tf
    from tensorflow.python.ops import resource_variable_ops

    def create(next_creator: Callable[..., tf.Variable], **options: Any) -> tf.Variable:
        if options.get("shape") is None:
            return next_creator(**options)
        names = ("trainable", "name", "shape", "dtype", "constraint", "synchronization", "aggregation")
        return resource_variable_ops.UninitializedVariable(**{name: options.get(name) for name in names})

    with tf.variable_creator_scope(create):
        yield


class LayerCall(NamedTuple):
    """A call of a layer in a network.

    Attributes:
      layer: The layer.
      inputs: Symbolic tensors that the call reads.
      outputs: Symbolic tensors that the call returns.
    """

    layer: tf_keras.layers.Layer
    inputs: list[Any]
    outputs: list[Any]


def list_calls(network: tf_keras.Model) -> list[LayerCall]:
    """Return the calls of a network's layers, in an order in which they can be computed.

    A subclass of Model with a method `call` does not list its calls.

    tf_keras lists the calls of a layer in public, but calls of other networks with the same layer are among them. The
    calls of one network are in `_nodes_by_depth`. Checked with tf_keras 2.16 and 2.21.
    """
    import tensorflow as tf

    by_depth = getattr(network, "_nodes_by_depth", {})
    nodes = (node for depth in sorted(by_depth, reverse=True) for node in by_depth[depth])
    return [LayerCall(node.layer, list(node.keras_inputs), tf.nest.flatten(node.outputs)) for node in nodes]


class _CountedFunction:
    """A function that counts how many of its calls have begun and ended."""

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
    """Register a function that graphs in this process can call with `call_py_function`.

    The functions of tf.py_function and tf.numpy_function can only be called in the process that traced the graph,
    because their names contain a counter of that process. A graph that a coordinator traces for the workers of a
    ParameterServerStrategy needs a name that all workers have registered. `script_ops._py_funcs` does not offer a
    public way to choose the name. Checked with TensorFlow 2.16 and 2.21.

    Args:
      name: Name of the function, which must be the same in all processes.
      function: Function that takes NumPy arrays or scalars and returns a list of arrays.
    """
    from tensorflow.python.ops import script_ops

    if not _FUNCTIONS:
        atexit.register(_await_py_functions)
    if name not in _FUNCTIONS or _FUNCTIONS[name].function is not function:
        # Keep a reference to the function, because TensorFlow holds only a weak reference.
        script_ops._py_funcs._funcs[name] = _FUNCTIONS[name] = _CountedFunction(function)


def call_py_function(name: str, inputs: Sequence[tf.Tensor], dtypes: Sequence[tf.DType]) -> list[tf.Tensor]:
    """Call a registered function in the process that runs this op.

    Args:
      name: Name under which `register_py_function` registered the function.
      inputs: Arguments of the function. It receives strings as bytes.
      dtypes: Dtypes of the arrays that the function returns.

    Returns:
      The returned arrays as tensors of unknown shape. If the function raises an exception, the op fails with a
      tf.errors.OpError that contains the exception's text.
    """
    import tensorflow as tf

    return list(tf.raw_ops.PyFunc(input=list(inputs), token=name, Tout=list(dtypes)))


def _await_py_functions() -> None:
    """Wait until the threads of tf.data have stopped calling functions, which they do once their buffers are full.

    If a thread calls a Python function while the interpreter is being finalized, Python ends the thread inside the
    call. The destructor of the thread's iterator would then wait for it forever.
    """
    seen = -1
    while (begun := sum(function.begun for function in _FUNCTIONS.values())) != seen or _running():
        seen = begun
        time.sleep(_QUIET_SECONDS)


def _running() -> bool:
    return any(function.begun != function.ended for function in _FUNCTIONS.values())


def leave_unconverted(*packages: str) -> None:
    """Make AutoGraph call the functions of packages without converting them, as it does for keras.

    AutoGraph has a rule for keras, but not for tf_keras. It would convert hundreds of functions that do not need it,
    which takes ten seconds at the first `fit`. Converting this project's input pipelines and layers, which do not use
    Python control flow on tensors, would take another second. The `call` methods of layers in other packages are still
    converted. Checked with TensorFlow 2.16.

    Args:
      packages: Names of packages, such as tf_keras.
    """
    from tensorflow.python.autograph.core import config

    for package in packages:
        rule = config.DoNotConvert(package)
        if not any(str(existing) == str(rule) for existing in config.CONVERSION_RULES):
            config.CONVERSION_RULES = (rule, *config.CONVERSION_RULES)


def clone_lambda_layers() -> None:
    """Allow tf_keras to copy models with Lambda layers in this process.

    tf_keras copies a layer by means of its config. It refuses to create a function from a config, because the config
    may come from an untrusted file. Here all configs come from models in this process. Checked with tf_keras 2.16.
    """
    import tf_keras

    tf_keras.__internal__.enable_unsafe_deserialization()


def is_functional(layer: tf_keras.layers.Layer) -> bool:
    """Return whether a layer is a network whose layers and tensors are known, so that `list_calls` can list them.

    tf_keras does not have a public attribute for it. Checked with tf_keras 2.16 and 2.21.
    """
    return bool(getattr(layer, "_is_graph_network", False))


def create_session(**threads: int) -> tf.compat.v1.Session:
    """Create a session for `load_graph`.

    TensorFlow optimizes a graph when it is first called. By default it does so twice, and looks for tensors to swap
    between devices. Once, and without swapping, the first calls of the signatures of a model with 800 columns take 14 %
    less time, and later calls take the same time. Checked with TensorFlow 2.16.

    Args:
      threads: Fields of ConfigProto that set numbers of threads.
    """
    import tensorflow as tf
    from tensorflow.core.protobuf import rewriter_config_pb2

    config = tf.compat.v1.ConfigProto(**threads)
    rewriter = rewriter_config_pb2.RewriterConfig
    config.graph_options.rewrite_options.meta_optimizer_iterations = rewriter.ONE
    config.graph_options.rewrite_options.memory_optimization = rewriter.NO_MEM_OPT
    return tf.compat.v1.Session(graph=tf.Graph(), config=config)


def load_graph(session: tf.compat.v1.Session, folder: str) -> Any:
    """Load a SavedModel into a session as tf.compat.v1.saved_model.load does, without holding the GIL for long.

    Hook: TensorFlow imports the graph and all of its functions in one call, which holds the GIL and infers the shapes
    of every called function. For a model of 15 MB this takes 6.3 CPU-seconds and blocks other threads for up to 4.1 s.
    Here the functions are added one by one after the graph. This takes 1.4 CPU-seconds and blocks other threads for up
    to 0.4 s. Checked with TensorFlow 2.16.

    Args:
      session: Session with an empty graph.
      folder: Folder of the SavedModel.

    Returns:
      The MetaGraphDef, without the functions.

    Raises:
      Exception: The folder does not contain a SavedModel. TensorFlow raises errors of different types.
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
        for definition in functions:
            definition.add_to_graph(session.graph)
        loader.restore_variables(session, saver)
        loader.run_init_ops(session, tags)
    return meta_graph
