"""Alias for one release: Kubernetes manifests written earlier start `python -m components.trainer.member JOB`."""

import runpy

if __name__ == "__main__":
    runpy.run_module("components.trainer.cluster_task", run_name="__main__", alter_sys=True)
