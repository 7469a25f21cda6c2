"""Private and undocumented parts of Beam's runner for one machine (FnApiRunner) and of its worker (the harness).

Checked with Beam 2.74 and 2.77.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import grpc
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions
from apache_beam.portability.api import (
    beam_fn_api_pb2,
    beam_provision_api_pb2,
    beam_provision_api_pb2_grpc,
    endpoints_pb2,
)
from apache_beam.runners.portability import local_job_service
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.runners.portability.fn_api_runner.worker_handlers import (
    GrpcWorkerHandler,
    WorkerHandler,
)
from apache_beam.runners.worker import sdk_worker_main, worker_pool_main
from apache_beam.runners.worker.worker_id_interceptor import WorkerIdInterceptor
from apache_beam.transforms import DoFn, environments, userstate
from google.protobuf import json_format, text_format

_PROVISION_SECONDS = 60.0


def _nothing() -> None:
    pass


def cache_introspection() -> None:
    """Make Beam derive options from flags, and the state of a DoFn from its class, once instead of at every use.

    Hook: `PipelineOptions.view_as` and `userstate.get_dofn_specs`. To build and run a pipeline of 30 transforms, Beam
    calls each of them more than a hundred times. The former builds an argument parser and parses the flags, and the
    latter inspects the signatures of all methods. Together, they take about a third of the CPU time of a pipeline over
    a small table. Calling this function again has no effect.
    """
    if not hasattr(PipelineOptions.view_as, "__wrapped__"):
        PipelineOptions.view_as = _cache_views(PipelineOptions.view_as)
        userstate.get_dofn_specs = _cache_specs(userstate.get_dofn_specs)


def _cache_views(view_as: Callable[..., PipelineOptions]) -> Callable[..., PipelineOptions]:
    @functools.lru_cache(maxsize=1024)
    def parse(cls: Any, flags: tuple[str, ...]) -> Any:
        return cls(list(flags))._visible_options

    @functools.wraps(view_as)
    def cached_view_as(self: PipelineOptions, cls: Any) -> PipelineOptions:
        # Without flags, Beam parses the arguments of the process.
        if self._flags is None or cls.__init__ is not PipelineOptions.__init__:
            return view_as(self, cls)
        view = cls.__new__(cls)
        view._flags, view._visible_options = self._flags, parse(cls, tuple(self._flags))
        view._all_options = self._all_options
        for name, value in vars(view._visible_options).items():
            if name not in self._all_options:
                self._all_options[name] = copy.copy(value)
        return view

    return cached_view_as


def _cache_specs(get_dofn_specs: Callable[[DoFn], tuple[Any, Any]]) -> Callable[[DoFn], tuple[Any, Any]]:
    # The attributes of an instance can hide methods of its class, so their names are a part of the key.
    specs: weakref.WeakKeyDictionary[Any, dict[frozenset[str], tuple[Any, Any]]] = weakref.WeakKeyDictionary()

    @functools.wraps(get_dofn_specs)
    def cached_get_dofn_specs(dofn: DoFn) -> tuple[Any, Any]:
        # A class such as Beam's wrapper for exception handling takes the methods from the function in each instance.
        cls: Any = type(dofn)
        is_wrapper = cls.__getattribute__ is not object.__getattribute__ or hasattr(cls, "__getattr__")
        if is_wrapper or any(isinstance(value, types.MethodType) for value in vars(dofn).values()):
            return get_dofn_specs(dofn)
        known, attributes = specs.setdefault(type(dofn), {}), frozenset(vars(dofn))
        if attributes not in known:
            known[attributes] = get_dofn_specs(dofn)
        states, timers = known[attributes]
        return set(states), set(timers)

    return cached_get_dofn_specs


@contextlib.contextmanager
def on_lost_worker(act: Callable[[], object]) -> Iterator[None]:
    """Call a function when a worker process of `--direct_running_mode=multi_processing` ends with an error.

    Hook: a thread named `run_worker` waits for each worker process. If the process fails, Beam only raises an exception
    in this thread.

    Args:
      act: Function that is called in the thread of the lost worker.
    """
    previous = threading.excepthook

    def report(arguments: threading.ExceptHookArgs) -> None:
        previous(arguments)
        if arguments.thread and arguments.thread.name == "run_worker":
            act()

    threading.excepthook = report
    try:
        yield
    finally:
        threading.excepthook = previous


@contextlib.contextmanager
def listen_on_loopback() -> Iterator[None]:
    """Make the servers that Beam starts for its workers within the context listen on localhost only.

    Hook: the name `grpc` in the modules of FnApiRunner's servers, of the logging server for worker processes, and of
    the pool for LOOPBACK workers. They listen on `[::]`, where other machines can reach them. Beam does not offer an
    option to change this.
    """
    modules = (worker_handlers, local_job_service, worker_pool_main)
    for module in modules:
        module.grpc = types.SimpleNamespace(**{**vars(grpc), "server": _local_server})
    try:
        yield
    finally:
        for module in modules:
            module.grpc = grpc


def _local_server(*arguments: Any, **options: Any) -> grpc.Server:
    server = grpc.server(*arguments, **options)
    add = server.add_insecure_port
    server.add_insecure_port = lambda address: add(address.replace("[::]:", "localhost:"))
    return server


class WorkersRunner(FnApiRunner):  # type: ignore[misc]
    """Beam's FnApiRunner with several workers in a custom environment."""

    def run_in(
        self, environment: environments.Environment, workers: int, pipeline: Any, options: PipelineOptions
    ) -> Any:
        """Run a pipeline as `FnApiRunner.run_pipeline` does.

        Hook: `_default_environment` and `_num_workers`. The public option `--direct_num_workers` logs a warning that
        several workers need another running mode. The warning does not apply to workers of a custom environment.

        Args:
          environment: Environment of the workers, see `register_workers`.
          workers: Number of workers.
          pipeline: The pipeline to run.
          options: Options of the pipeline.

        Returns:
          The result of the pipeline, as from `FnApiRunner.run_pipeline`.
        """
        self._default_environment = environment
        self._num_workers, options.view_as(DirectOptions).direct_num_workers = workers, None
        return super().run_pipeline(pipeline, options)


def register_workers(urn: str, handler: Callable[..., WorkerHandler]) -> Callable[[bytes], environments.Environment]:
    """Register a kind of worker.

    Hook: the registries of environments and of worker handlers. Beam does not offer another extension point for
    workers.

    Args:
      urn: Name of the kind.
      handler: Function that creates Beam's side of a worker. Its arguments are the payload of the environment, Beam's
        state handler, the provision info, and Beam's gRPC server; see `ProcessHandler`.

    Returns:
      A function that creates an environment with such workers from its payload.
    """

    @environments.Environment.register_urn(urn, bytes)
    class Workers(environments.Environment):  # type: ignore[misc]
        def __init__(
            self, payload: bytes, capabilities: Any = (), artifacts: Any = (), resource_hints: Any = None
        ) -> None:
            super().__init__(capabilities or environments.python_sdk_capabilities(), artifacts, resource_hints)
            self._payload = payload

        def to_runner_api_parameter(self, _: Any) -> tuple[str, bytes]:
            return urn, self._payload

        @staticmethod
        def from_runner_api_parameter(payload: bytes, capabilities: Any, artifacts: Any, hints: Any, _: Any) -> Workers:
            return Workers(payload, capabilities, artifacts, hints)

    WorkerHandler.register_environment(urn, bytes)(handler)
    return Workers


class ProcessHandler(GrpcWorkerHandler):  # type: ignore[misc]
    """Beam's side of a worker in another process.

    A subclass starts the process in `start_worker`. The process calls `run_harness`.
    """

    def __init__(self, _: bytes, state: Any, provision_info: Any, grpc_server: Any) -> None:
        super().__init__(state, provision_info, grpc_server)

    def harness_environment(self) -> dict[str, str]:
        """Return the argument for `run_harness`: the worker's ID, the address of Beam, and the pipeline options."""
        address = endpoints_pb2.ApiServiceDescriptor(url=self.control_address)
        return {
            "WORKER_ID": self.worker_id,
            "CONTROL_API_SERVICE_DESCRIPTOR": text_format.MessageToString(address),
            "PIPELINE_OPTIONS": json_format.MessageToJson(self.provision_info.provision_info.pipeline_options),
        }

    def stop_worker(self) -> None:
        """Do nothing, because a worker ends when its connection is closed, which has happened before this call."""


def run_harness(
    environment: dict[str, str], on_connected: Callable[[], None] = _nothing, on_work: Callable[[], None] = _nothing
) -> None:
    """Run Beam's worker in this process until its connection is closed.

    Args:
      environment: Environment variables of the worker, from `ProcessHandler.harness_environment` or `pool_environment`.
      on_connected: Function that is called when the worker has connected to the runner.
      on_work: Function that is called when the worker receives its first instruction.
    """
    _, harness, _ = sdk_worker_main.create_harness(environment)
    on_connected()
    execute = harness._execute

    def first(*arguments: Any) -> None:
        harness._execute = execute
        on_work()
        execute(*arguments)

    # Hook: every instruction passes through `_execute`. Beam does not offer a callback for the first instruction.
    harness._execute = first
    harness.run()


def pool_environment(request: beam_fn_api_pb2.StartWorkerRequest) -> dict[str, str]:
    """Return the argument for `run_harness`, for a worker that a runner requests from a worker pool.

    Beam's worker pool ignores the pipeline options and does not send the worker's log to the runner. Here the options
    come from the runner's provision service, as in Beam's containers, and the log goes to the runner.
    """
    environment = {
        "WORKER_ID": request.worker_id,
        "CONTROL_API_SERVICE_DESCRIPTOR": text_format.MessageToString(request.control_endpoint),
    }
    if request.HasField("logging_endpoint"):
        environment["LOGGING_API_SERVICE_DESCRIPTOR"] = text_format.MessageToString(request.logging_endpoint)
    if request.HasField("provision_endpoint"):
        with grpc.insecure_channel(request.provision_endpoint.url) as channel:
            channel_with_id = grpc.intercept_channel(channel, WorkerIdInterceptor(request.worker_id))
            get = beam_provision_api_pb2_grpc.ProvisionServiceStub(channel_with_id).GetProvisionInfo
            message = beam_provision_api_pb2.GetProvisionInfoRequest()
            info = get(message, timeout=_PROVISION_SECONDS, wait_for_ready=True).info
        environment["PIPELINE_OPTIONS"] = json_format.MessageToJson(info.pipeline_options)
        environment["RUNNER_CAPABILITIES"] = " ".join(info.runner_capabilities)
    return environment


def job_id(result: Any) -> str:
    """Return the ID of a job on its job server.

    Hook: the private attribute `_job_id` of a portable runner's result.
    """
    return str(result._job_id)
