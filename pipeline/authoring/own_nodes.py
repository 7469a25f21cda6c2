"""Imports the components of the section `nodes`, checks them against TFX's component specs, and connects them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any

from tfx.dsl.components.base.base_component import BaseComponent
from tfx.dsl.components.base.base_node import BaseNode
from tfx.dsl.components.base.executor_spec import ExecutorClassSpec
from tfx.dsl.components.common.resolver import Resolver
from tfx.types import BaseChannel

from components.base import user_code
from components.base.errors import InputError, PipelineError, first_line
from components.base.names import did_you_mean
from pipeline.authoring.config.own_nodes import OwnNodeConfig

CODE = "code_digest"
"""Parameter with the digest of a node's code. It makes the code part of TFX's cache key; executors ignore it."""


@dataclass(frozen=True)
class OwnComponent:
    """An imported component.

    Attributes:
      component: Component class. TFX's decorator `@component` converts functions to classes.
      code: Digest of the code of the component and of its executor.
    """

    component: Any
    code: str


def load(nodes: Sequence[OwnNodeConfig]) -> tuple[OwnComponent, ...]:
    """Import the components that nodes name.

    Raises:
      InputError: If a component does not exist, if its module cannot be imported, or if it is not a TFX component with
        an executor in Python.
    """
    return tuple(_load(index, node) for index, node in enumerate(nodes))


def _load(index: int, node: OwnNodeConfig) -> OwnComponent:
    """Import the component of a node, whose index in the section appears in errors."""
    component: Any = user_code.load(node.component)
    where = f"nodes.{index}.component: {node.component}:"
    if not _is_component(component):
        raise InputError(
            f"{where} expected a TFX component, received {_describe(component)}",
            "derive the class from BaseComponent, or decorate the function with TFX's @component",
        )
    executor = component.EXECUTOR_SPEC
    if not isinstance(executor, ExecutorClassSpec):
        raise InputError(
            f"{where} expected an executor in Python, received {type(executor).__name__}",
            "let the executor start the container or the service",
        )
    # The executor may be in another module, and a change of it must also invalidate the cache.
    modules = dict.fromkeys((user_code.module_of(node.component), executor.executor_class.__module__))
    return OwnComponent(component, user_code.digest(*modules))


def _is_component(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, BaseComponent)


def _describe(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"


def connect(
    nodes: Sequence[OwnNodeConfig], components: Sequence[OwnComponent], standard: Sequence[BaseNode]
) -> list[BaseNode]:
    """Create the nodes of the section, and connect them with the other nodes.

    Args:
      nodes: Entries of the section, whose dependencies do not form a cycle.
      components: Imported components, in the order of `nodes`.
      standard: Other nodes of the pipeline.

    Returns:
      The new nodes, in the order of `nodes`.

    Raises:
      InputError: If inputs, outputs or parameters do not fit a component. The error lists all problems of a node.
    """
    nodes_by_id = {node.id: node for node in standard}
    user_nodes = {node.name: (index, node, components[index]) for index, node in enumerate(nodes)}
    upstream = {name: set(node.upstream) & user_nodes.keys() for name, (_, node, _) in user_nodes.items()}
    for name in TopologicalSorter(upstream).static_order():
        nodes_by_id[name] = _make(*user_nodes[name], nodes_by_id)
    for index, node in enumerate(nodes):
        for field, names in (("after", node.after), ("before", node.before)):
            for name in names:
                if name not in nodes_by_id:
                    raise InputError(f"nodes.{index}.{field}: {_absent(name)}", _REMEDY)
                first, second = (name, node.name) if field == "after" else (node.name, name)
                nodes_by_id[second].add_upstream_node(nodes_by_id[first])
    return [nodes_by_id[name] for name in user_nodes]


_REMEDY = "fix it in the config, or change the component"


def _absent(name: str) -> str:
    return f"the pipeline of this config has no {name}"


def _make(
    index: int, node: OwnNodeConfig, own_component: OwnComponent, nodes_by_id: Mapping[str, BaseNode]
) -> BaseNode:
    """Create a node.

    Args:
      index: Index of the node in the section, for errors.
      node: Entry of the section.
      own_component: Imported component.
      nodes_by_id: Name → node, for the nodes that exist already.
    """
    problems = [
        *_argument_problems(node, own_component.component),
        *_input_problems(node, own_component.component, nodes_by_id),
        *_parameter_problems(node, own_component.component),
    ]
    if problems:
        where = f"nodes.{index}, {node.name}"
        if len(problems) == 1:
            raise InputError(f"{where}: {problems[0]}", _REMEDY)
        raise InputError(f"{where} does not fit {node.component}", _REMEDY, problems)
    channels = {key: _channel(source, nodes_by_id) for key, source in node.inputs.items()}
    parameters = {
        key: _convert(value, own_component.component.SPEC_CLASS, key) for key, value in node.parameters.items()
    }
    try:
        component = own_component.component(**channels, **parameters).with_id(node.name)
    except PipelineError:
        raise
    except Exception as error:
        message = f"{node.component} refuses its arguments: {type(error).__name__}: {first_line(error)}"
        raise InputError(f"nodes.{index}, {node.name}: {message}", _REMEDY) from error
    component.exec_properties[CODE] = own_component.code
    return component


def _channel(source: str, nodes_by_id: Mapping[str, BaseNode]) -> BaseChannel:
    name, _, output = source.partition(".")
    return nodes_by_id[name].outputs[output]


def _argument_problems(node: OwnNodeConfig, component: Any) -> Iterator[str]:
    """Yield inputs and parameters that the component does not have, and required ones that are missing."""
    spec = component.SPEC_CLASS
    optional = {**_optional(spec.INPUTS), **_optional(spec.PARAMETERS)}
    signature = inspect.signature(component).parameters.values()
    by_spec = any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature)
    arguments = {
        parameter.name: parameter.default is not parameter.empty
        for parameter in signature
        if parameter.kind in _BY_NAME
    }
    if by_spec:
        arguments = {**optional, **arguments}
    for field, names, other_field, other_spec in (
        ("inputs", node.inputs, "parameters", spec.PARAMETERS),
        ("parameters", node.parameters, "inputs", spec.INPUTS),
    ):
        for name in names:
            if name in other_spec:
                yield f"{field}.{name}: {name} belongs to {other_field}"
            elif name not in arguments:
                yield f"{field}.{name}: {node.component} has no {field[:-1]} {name!r}{did_you_mean(name, arguments)}"
    for name, is_optional in arguments.items():
        if not is_optional and name not in (*node.inputs, *node.parameters):
            yield f"{node.component} requires {name!r}, which is missing"


_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def _optional(specs: Mapping[str, Any]) -> dict[str, bool]:
    return {name: spec.optional for name, spec in specs.items()}


def _input_problems(node: OwnNodeConfig, component: Any, nodes_by_id: Mapping[str, BaseNode]) -> Iterator[str]:
    """Yield sources that do not exist, and outputs whose artifact type differs from the type of the input."""
    for key, source in node.inputs.items():
        name, _, output = source.partition(".")
        expected = component.SPEC_CLASS.INPUTS.get(key)
        if name not in nodes_by_id:
            yield f"inputs.{key}: {_absent(name)}"
        elif output not in nodes_by_id[name].outputs:
            yield f"inputs.{key}: {name} has no output {output!r}{did_you_mean(output, nodes_by_id[name].outputs)}"
        elif expected is not None:
            channel = _channel(source, nodes_by_id)
            try:
                expected.type_check(key, channel)
            except TypeError:
                types = f"expected {expected.type.TYPE_NAME}, received {channel.type.TYPE_NAME}"
                yield f"inputs.{key}: {types}, the type of {source}"
            if isinstance(nodes_by_id[name], Resolver) and not expected.allow_empty:
                yield (
                    f"inputs.{key}: expected an optional input, because {source} is empty as long as there is no such "
                    "model; give it the default None"
                )


def _parameter_problems(node: OwnNodeConfig, component: Any) -> Iterator[str]:
    """Yield values that do not have the type of their parameter."""
    spec = component.SPEC_CLASS
    for key, value in node.parameters.items():
        if key in spec.PARAMETERS:
            try:
                spec.PARAMETERS[key].type_check(key, _convert(value, spec, key))
            # For a parameter that is a protobuf message, protobuf raises errors of several types.
            except Exception:
                expected = getattr(spec.PARAMETERS[key].type, "__name__", str(spec.PARAMETERS[key].type))
                yield f"parameters.{key}: expected {expected}, received {value!r}"


def _convert(value: Any, spec: Any, name: str) -> Any:
    """Convert an integer to float if the component expects a float: YAML reads `1` as an integer."""
    takes = spec.PARAMETERS[name].type if name in spec.PARAMETERS else None
    return float(value) if takes is float and type(value) is int else value
