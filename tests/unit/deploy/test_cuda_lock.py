"""Tests that the extra `cuda` pins the same TensorFlow, and that its lock contains the CUDA packages it requires."""

from __future__ import annotations

import importlib.metadata
import re
import sys

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pipeline.core.machine import list_cuda_wheels
from tests.support.runs.command import ROOT

LOCK = (ROOT / "requirements-cuda.txt").read_text()
LOCKED = re.findall(r"^(\S+)==(\S+) ; python_full_version (<|>=) '3.11'", LOCK, re.M)


def test_extra_pins_the_tensorflow_of_the_dependencies() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    dependencies = re.findall(r'^\s+"tensorflow==(.*)",$', project, re.M)
    extra = re.findall(r'^\s+"tensorflow\[and-cuda\]==(.*)",$', project, re.M)
    assert len(extra) == 2
    assert extra == dependencies


def test_lock_does_not_repeat_packages_of_the_default_installation() -> None:
    default = set(re.findall(r"^(\S+?)==", (ROOT / "requirements.txt").read_text(), re.M))
    assert LOCKED
    assert default.isdisjoint(name for name, *_ in LOCKED)


@pytest.mark.both_lines
def test_lock_contains_the_cuda_packages_that_tensorflow_requires() -> None:
    line = "<" if sys.version_info < (3, 11) else ">="
    locked = {canonicalize_name(name): version for name, version, where in LOCKED if where == line}
    folders = [importlib.metadata.distribution("tensorflow").locate_file("")]
    assert locked.keys() >= set(list_cuda_wheels(folders))
    for text in importlib.metadata.requires("tensorflow") or []:
        requirement = Requirement(text)
        if requirement.marker and requirement.marker.evaluate({"extra": "and-cuda"}) and "and-cuda" in text:
            assert requirement.specifier.contains(locked[canonicalize_name(requirement.name)]), text
