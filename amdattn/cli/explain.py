"""The explain commands, one for each operation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer

import amdattn
from amdattn.arch.products import REFERENCE
from amdattn.arch.props import KNOWN_DEVICES, KNOWN_PARTITIONS, DeviceProps
from amdattn.cli.options import Device
from amdattn.cli.output import AsJson, print_facts, print_json
from amdattn.cli.problem import registry_group
from amdattn.op.operation import Operation


def _explain(
    operation: Operation[Any, Any],
    problem: Any,
    *,
    device: Device = REFERENCE.name,
    as_json: AsJson = False,
) -> None:
    facts: Mapping[str, Any] = operation.planned(problem, _device(device)).as_dict()
    if as_json:
        print_json(dict(facts))
    else:
        print_facts("plan", facts)


def _device(name: str) -> DeviceProps:
    if name == "bound":
        return amdattn.device_props()
    known = KNOWN_DEVICES | KNOWN_PARTITIONS
    if name not in known:
        raise ValueError(f"--device={name!r} must be one of {', '.join(known)}, bound")
    return known[name]


app = typer.Typer(
    cls=registry_group(_explain, "Explain the plan of {}.", default="attention"),
    help="Show which kernel a problem gets, and why. Needs no device. Default: attention.",
)


@app.callback()
def _of_all() -> None:
    """Keep this a group, whose commands come from the registry."""
