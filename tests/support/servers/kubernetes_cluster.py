"""A Kubernetes cluster of one node, as real processes in this process's network namespace; see tools/cluster.sh."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

CLUSTER = Path(__file__).parents[3] / ".cache" / "cluster"
MANIFESTS = CLUSTER / "manifests"
IMAGE = "localhost/pipeline:1"
has_api_server = pytest.mark.skipif(
    not (MANIFESTS / "trainer.yaml").exists(), reason="no Kubernetes: `make cluster` makes it"
)
has_node = pytest.mark.skipif(
    not (CLUSTER / "imported" / "pipeline").exists(), reason="no Kubernetes: `make cluster` makes it"
)
_BIN = CLUSTER / "bin"
_HOST = "10.77.0.1"
"""The address of the node, of the API server and of the DNS server: in this network alone."""
_NODE = "node"
_TOKEN = "admin"  # noqa: S105 - of a cluster that nobody else reaches
_SECONDS = 120
_CONTROLLERS = {
    "jobset": ["/jobset"],
    # It exits after two minutes if the definition of an enabled kind is missing.
    "training-operator": ["/training-operator.v1", "--enable-scheme=tfjob"],
    "trainer": ["/trainer-controller-manager"],
    "kueue": ["/kueue"],
}
"""Manifest of a controller → its command in the image."""
_USED = ("jobsets.jobset.x-k8s.io", "tfjobs.kubeflow.org", "inferenceservices.serving.kserve.io")
_USED_GROUPS = (".istio.io", ".trainer.kubeflow.org", ".kueue.x-k8s.io")
"""Definitions, and groups of definitions, that a test or a controller uses."""
_KUBELET = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
    "cgroupDriver": "cgroupfs",
    "failSwapOn": False,
    "failCgroupV1": False,
    "clusterDNS": [_HOST],
    "clusterDomain": "cluster.local",
    "makeIPTablesUtilChains": False,
    # Do not let the kubelet change this machine's kernel settings.
    "featureGates": {"KubeletInUserNamespace": True},
    "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
    "imageGCHighThresholdPercent": 100,
}
_DNS = """
.:53 {
  errors
  kubernetes cluster.local {
    kubeconfig FOLDER/kubeconfig test
    pods disabled
  }
}
"""


@dataclass
class Cluster:
    """A running cluster.

    Attributes:
      folder: for its files and logs.
    """

    folder: Path
    _processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def kubeconfig(self) -> Path:
        """The configuration of an administrator's client."""
        return self.folder / "kubeconfig"

    def kubectl(self, *words: str | Path, stdin: str | None = None) -> str:
        """Run kubectl, and return what it prints; raise AssertionError with its errors if it fails."""
        command = [_BIN / "kubectl", "--kubeconfig", self.kubeconfig, *words]
        ended = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=_SECONDS)
        assert ended.returncode == 0, f"kubectl {' '.join(map(str, words))}: {ended.stderr}"
        return ended.stdout

    def get(self, *words: str) -> Any:
        """Return the object, or the list of objects, that `kubectl get` finds."""
        answer = json.loads(self.kubectl("get", *words, "--output=json"))
        return answer["items"] if answer["kind"] == "List" else answer

    def apply(self, *manifests: dict[str, Any], dry_run: bool = False) -> None:
        """Create or change objects; an unknown field is an error.

        Args:
          manifests: the objects.
          dry_run: Whether to check the objects without creating them.
        """
        options = (
            "--server-side",
            "--force-conflicts",
            "--validate=strict",
            *(["--dry-run=server"] if dry_run else []),
        )
        self.kubectl("apply", *options, "--filename=-", stdin=yaml.safe_dump_all(manifests))

    def wait_for(self, condition: str, *words: str, seconds: float = _SECONDS) -> None:
        """Wait until objects have a condition, as `kubectl wait` does."""
        self.kubectl("wait", f"--for={condition}", f"--timeout={seconds:.0f}s", *words)

    def start_control_plane(self) -> None:
        """Start the API server; it answers when this returns."""
        for words in (["link", "set", "lo", "up"], ["address", "replace", f"{_HOST}/32", "dev", "lo"]):
            subprocess.run(["ip", *words], check=True)
        key, tokens, certificates = self.folder / "sa.key", self.folder / "tokens.csv", self.folder / "certificates"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        tokens.write_text(f"{_TOKEN},admin,admin,system:masters\n")
        self.kubeconfig.write_text(yaml.safe_dump(_client(certificates / "apiserver.crt")))
        self._start("etcd", f"--data-dir={self.folder / 'etcd'}", "--unsafe-no-fsync", "--log-level=warn")
        self._start(
            "kube-apiserver",
            *("--etcd-servers=http://127.0.0.1:2379", "--authorization-mode=RBAC", "--allow-privileged"),
            *(f"--advertise-address={_HOST}", f"--bind-address={_HOST}", f"--cert-dir={certificates}"),
            *(f"--token-auth-file={tokens}", "--service-cluster-ip-range=10.96.0.0/16", "--enable-aggregator-routing"),
            *(f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}"),
            *(
                "--service-account-issuer=https://kubernetes.default.svc",
                "--kubelet-preferred-address-types=InternalIP",
            ),
        )
        self._until(lambda: self.kubectl("get", "--raw=/readyz") == "ok")

    def start_node(self) -> None:
        """Start the controllers, the scheduler, the network and the kubelet; the node is ready when this returns."""
        clients = (f"--kubeconfig={self.kubeconfig}", f"--authentication-kubeconfig={self.kubeconfig}")
        clients = (*clients, f"--authorization-kubeconfig={self.kubeconfig}", "--leader-elect=false")
        self._start(
            "kube-controller-manager",
            *(*clients, f"--service-account-private-key-file={self.folder / 'sa.key'}"),
            *(f"--root-ca-file={self.folder / 'certificates' / 'apiserver.crt'}", f"--cert-dir={self.folder}"),
        )
        self._start("kube-scheduler", *clients, f"--cert-dir={self.folder}")
        self._start(
            "kube-proxy",
            *(f"--kubeconfig={self.kubeconfig}", f"--hostname-override={_NODE}", "--cluster-cidr=10.78.0.0/24"),
            *("--proxy-mode=iptables", "--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0"),
            "--conntrack-tcp-timeout-close-wait=0",
        )
        (self.folder / "Corefile").write_text(_DNS.replace("FOLDER", str(self.folder)))
        self._start("coredns", f"-conf={self.folder / 'Corefile'}")
        socket, resolver = self.folder / "containerd.sock", self.folder / "resolv.conf"
        resolver.write_text("")
        settings = {**_KUBELET, "containerRuntimeEndpoint": f"unix://{socket}", "resolvConf": str(resolver)}
        settings |= {"podLogsDir": str(self.folder / "pods"), "volumePluginDir": str(self.folder / "plugins")}
        (self.folder / "kubelet.yaml").write_text(yaml.safe_dump(settings))
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        runtime = f"containerd --config {CLUSTER}/containerd.toml --state {self.folder}/run --address {socket}"
        kubelet = (
            f"{_BIN}/kubelet --config={self.folder}/kubelet.yaml --kubeconfig={self.kubeconfig} --node-ip={_HOST} "
            f"--hostname-override={_NODE} --root-dir={self.folder}/kubelet --cert-dir={self.folder}"
        )
        # With PID and mount namespaces, nothing of the node outlives its first process.
        self._run(
            "node",
            "unshare",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "--propagation",
            "private",
            "sh",
            "-c",
            f"mount -t tmpfs tmpfs /run && {runtime} & exec {kubelet}",
        )
        self._until(lambda: self.get("nodes") != [])
        self.wait_for("condition=Ready", "node", _NODE)

    def start_controllers(self, *names: str) -> None:
        """Start controllers with their webhooks; they are ready when this returns.

        Args:
          names: Manifests of the controllers, of `_CONTROLLERS`.
        """
        started = []
        for name in names:
            documents = definitions(name)
            [deployment] = [document for document in documents if document["kind"] == "Deployment"]
            pod = deployment["spec"]["template"]["spec"]
            pod["securityContext"] = {"runAsUser": 65532}
            [container] = pod["containers"]
            container |= {"image": "localhost/controllers:1", "command": _CONTROLLERS[name], "resources": {}}
            container["imagePullPolicy"] = "Never"
            container["readinessProbe"] |= {"initialDelaySeconds": 1, "periodSeconds": 1}
            self.apply(*documents)
            started.append(deployment["metadata"])
        for metadata in started:
            words = (f"deployment/{metadata['name']}", f"--namespace={metadata['namespace']}")
            self.wait_for("condition=Available", *words)

    def end(self) -> None:
        """Kill all processes."""
        for process in reversed(self._processes):
            process.kill()
            process.wait()

    def _start(self, program: str, *arguments: str) -> None:
        self._run(program, str(_BIN / program), *arguments)

    def _run(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *command],
                cwd=self.folder,
                env={**os.environ, "KUBECONFIG": str(self.kubeconfig)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._processes.append(process)

    def _until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _SECONDS
        while True:
            with contextlib.suppress(AssertionError):
                if holds():
                    return
            assert time.monotonic() < deadline, f"see {self.folder}"
            time.sleep(0.1)


def _client(certificate: Path) -> dict[str, Any]:
    """Return the configuration of an administrator's client."""
    server = {"server": f"https://{_HOST}:6443", "certificate-authority": str(certificate)}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": server}],
        "users": [{"name": "admin", "user": {"token": _TOKEN}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
        "current-context": "test",
    }


def definitions(name: str) -> list[dict[str, Any]]:
    """Return the objects of a manifest that tools/cluster.sh has made, without the definitions that no test needs."""
    documents = yaml.load_all((MANIFESTS / f"{name}.yaml").read_text(), Loader=yaml.CSafeLoader)
    return [
        process
        for process in documents
        if process["kind"] != "CustomResourceDefinition" or _is_used(process["metadata"]["name"])
    ]


def _is_used(name: str) -> bool:
    return name in _USED or name.endswith(_USED_GROUPS)


@contextlib.contextmanager
def api_server(folder: Path) -> Iterator[Cluster]:
    """Yield an API server without nodes that knows the resources of all manifests.

    Args:
      folder: for its files; made.
    """
    folder.mkdir()
    cluster = Cluster(folder)
    try:
        cluster.start_control_plane()
        yield cluster
    finally:
        cluster.end()


@contextlib.contextmanager
def kubernetes(folder: Path) -> Iterator[Cluster]:
    """Yield a whole cluster, with the controllers of JobSets, TrainJobs and TFJobs.

    Args:
      folder: for its files; made.
    """
    with api_server(folder) as cluster:
        cluster.start_node()
        cluster.start_controllers("jobset", "training-operator", "trainer")
        yield cluster


def kill_task(task: str, index: int) -> None:
    """Kill the process of a training's task, as the kernel does when memory runs out."""
    place = f'"task":{{"type":"{task}","index":{index}}}'
    [process] = [process for process in psutil.process_iter() if _is_task(process) and place in _tf_config(process)]
    process.send_signal(signal.SIGKILL)


def _is_task(process: psutil.Process) -> bool:
    try:
        return "components.trainer.cluster_task" in process.cmdline() and process.cmdline()[0] == "python"
    except psutil.Error:
        return False


def _tf_config(process: psutil.Process) -> str:
    return process.environ().get("TF_CONFIG", "").replace(" ", "")
