"""The private parts of Beam that components/compat/beam.py relies on are as they were when it was written."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os

import apache_beam as beam
import grpc
import pytest
from apache_beam.coders import VarIntCoder
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, SetupOptions, StandardOptions
from apache_beam.runners.portability import local_job_service, portable_runner
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.runners.worker import sdk_worker, sdk_worker_main, worker_pool_main
from apache_beam.transforms import core, environments, userstate
from apache_beam.transforms.timeutil import TimeDomain

from components.compat import beam as compat
from tests.support.servers.listening import listens_on_loopback

pytestmark = pytest.mark.both_lines

RENEW = "Beam has changed: adapt components/compat/beam.py"


def test_the_runner_reads_its_environment_and_number_of_workers_from_its_attributes():
    runner = FnApiRunner()
    assert {"_default_environment", "_num_workers"} <= vars(runner).keys(), RENEW
    source = inspect.getsource(FnApiRunner.run_pipeline)
    assert "self._num_workers = pipeline_direct_num_workers or self._num_workers" in source, RENEW
    assert "to_runner_api(default_environment=self._default_environment)" in source, RENEW
    assert PipelineOptions([]).view_as(DirectOptions).direct_num_workers is not None


@pytest.mark.parametrize("applies", [False, True])
def test_servers_for_workers_on_this_machine_listen_on_loopback_only(applies: bool):
    with compat.listen_on_loopback() if applies else contextlib.nullcontext():
        server = worker_handlers.GrpcServer(None, None, None)
        address, pool = worker_pool_main.BeamFnExternalWorkerPoolServicer.start()
    ports = [server.control_port, server.data_port, server.state_port, server.logging_port]
    local = [listens_on_loopback(os.getpid(), port) for port in (*ports, int(address.rpartition(":")[2]))]
    server.close()
    pool.stop(None).wait()
    # If this fails without the hook, Beam uses another address, and the hook can be removed.
    assert local == [applies] * 5, RENEW
    assert worker_handlers.grpc is local_job_service.grpc is worker_pool_main.grpc is grpc


def test_an_environment_of_ours_survives_the_runners_messages():
    urn = "tfx-pipeline:env:test"
    received: list[bytes] = []
    environment = compat.register_workers(urn, lambda payload, *_: received.append(payload))
    message = environment(b"payload").to_runner_api(None)
    assert (message.urn, message.payload) == (urn, b"payload"), RENEW
    assert set(message.capabilities) == set(environments.python_sdk_capabilities()), RENEW
    restored = environments.Environment.from_runner_api(message, None)
    assert restored.to_runner_api(None) == message, RENEW
    worker_handlers.WorkerHandler.create(message, None, None, None)
    assert received == [b"payload"], RENEW


@pytest.mark.parametrize(
    ("handler", "parameters"),
    [
        (worker_handlers.GrpcWorkerHandler, ["state", "provision_info", "grpc_server"]),
        (worker_handlers.ExternalWorkerHandler, ["external_payload", "state", "provision_info", "grpc_server"]),
    ],
)
def test_the_handlers_take_our_arguments_and_have_a_control_connection(handler: type, parameters: list[str]):
    assert list(inspect.signature(handler).parameters) == parameters, RENEW
    source = inspect.getsource(worker_handlers.GrpcWorkerHandler.__init__)
    assert "self.control_conn = " in source, RENEW
    assert "self.control_address = " in source, RENEW


def test_a_workers_answers_arrive_in_set_input():
    connection = worker_handlers.ControlConnection()
    connection.set_input(iter(()))
    assert "set_input(" in inspect.getsource(worker_handlers.BeamFnControlServicer.Control), RENEW


def test_a_harness_reads_its_environment():
    assert next(iter(inspect.signature(sdk_worker_main.create_harness).parameters)) == "environment", RENEW
    source = inspect.getsource(sdk_worker_main)
    for name in ("WORKER_ID", "CONTROL_API_SERVICE_DESCRIPTOR", "PIPELINE_OPTIONS"):
        assert name in source, RENEW


def test_a_harness_reports_its_first_instruction():
    assert "execute" in inspect.getsource(sdk_worker.SdkHarness._request_process_bundle), RENEW
    source = inspect.getsource(sdk_worker.SdkHarness)
    assert source.count("self._execute(") >= 5, RENEW
    assert list(inspect.signature(sdk_worker.SdkHarness._execute).parameters) == ["self", "task", "request"], RENEW


def test_the_result_of_a_portable_runner_has_the_jobs_id():
    assert compat.job_id(portable_runner.PipelineResult(None, "7", None, None)) == "7", RENEW


def test_the_thread_of_a_worker_process_fails_with_it():
    source = inspect.getsource(worker_handlers.SubprocessSdkWorkerHandler.start_worker)
    assert "name='run_worker', target=self.worker.run" in source, RENEW
    assert "raise RuntimeError(" in inspect.getsource(local_job_service.SubprocessSdkWorker.run), RENEW


class _Stateful(beam.DoFn):  # type: ignore[misc]
    STATE = userstate.BagStateSpec("seen", VarIntCoder())
    TIMER = userstate.TimerSpec("end", TimeDomain.WATERMARK)

    def process(self, element, seen=beam.DoFn.StateParam(STATE), end=beam.DoFn.TimerParam(TIMER)):  # noqa: B008
        yield element

    @userstate.on_timer(TIMER)
    def close(self):
        pass


def test_views_of_options_equal_the_views_that_beam_parses():
    compat.cache_introspection()
    parse = PipelineOptions.view_as.__wrapped__
    flags = ["--direct_num_workers=3", "--streaming", "--extra_package=a", "--extra_package=b"]
    options, expected = PipelineOptions(flags, runner="Other"), PipelineOptions(flags, runner="Other")
    for cls in (DirectOptions, StandardOptions, SetupOptions, DirectOptions):
        view, parsed = options.view_as(cls), parse(expected, cls)
        assert type(view) is cls
        assert dir(view) == dir(parsed), RENEW
        assert str(view) == str(parsed), RENEW
    assert options.view_as(StandardOptions).runner == "Other"
    assert options.get_all_options() == expected.get_all_options()


def test_views_share_their_values_with_each_other_but_not_with_other_options():
    compat.cache_introspection()
    options, other = PipelineOptions(["--extra_package=a"]), PipelineOptions(["--extra_package=a"])
    options.view_as(DirectOptions).direct_num_workers = 7
    options.view_as(SetupOptions).extra_packages.append("b")
    assert options.view_as(DirectOptions).direct_num_workers == 7
    assert options.view_as(SetupOptions).extra_packages == ["a", "b"]
    assert other.view_as(DirectOptions).direct_num_workers == 1
    assert other.view_as(SetupOptions).extra_packages == ["a"]


def test_state_of_a_function_equals_the_state_that_beam_finds():
    compat.cache_introspection()
    inspect_all = userstate.get_dofn_specs.__wrapped__
    wrapped = [core.CallableWrapperDoFn(function) for function in (len, "".join, lambda element: [element])]
    for dofn in (_Stateful(), core.DoFn(), *wrapped, _Stateful()):
        assert userstate.get_dofn_specs(dofn) == inspect_all(dofn), RENEW
    states, timers = userstate.get_dofn_specs(_Stateful())
    assert (states, timers) == ({_Stateful.STATE}, {_Stateful.TIMER})
    # The result belongs to the caller.
    states.clear()
    assert userstate.get_dofn_specs(_Stateful())[0] == {_Stateful.STATE}
    hidden = _Stateful()
    hidden.process = lambda element: [element]
    assert userstate.get_dofn_specs(hidden) == inspect_all(hidden) == (set(), set())


def test_state_of_a_wrapper_is_the_state_of_the_function_in_it():
    class Wrapper(beam.DoFn):  # type: ignore[misc]
        def __init__(self, dofn):
            self._dofn = dofn

        def __getattribute__(self, name):
            get = functools.partial(object.__getattribute__, self)
            return get(name) if name.startswith("__") or name == "_dofn" else getattr(get("_dofn"), name)

    compat.cache_introspection()
    inspect_all = userstate.get_dofn_specs.__wrapped__
    for dofn in (Wrapper(core.DoFn()), Wrapper(_Stateful())):
        assert userstate.get_dofn_specs(dofn) == inspect_all(dofn)
    assert userstate.get_dofn_specs(Wrapper(_Stateful()))[0] == {_Stateful.STATE}


def test_beam_looks_up_what_is_cached_in_its_modules():
    assert "userstate.get_dofn_specs(" in inspect.getsource(core.ParDo), RENEW
    assert list(inspect.signature(PipelineOptions.view_as).parameters) == ["self", "cls"], RENEW
    names = {"_flags", "_visible_options", "_all_options"}
    assert set(vars(PipelineOptions([]))) == names, RENEW
