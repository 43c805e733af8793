"""The kernel driver's facts of GPUs: KFD's topology in sysfs, which needs no HIP."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

NODES = Path("/sys/class/kfd/kfd/topology/nodes")
_BUS_ID = re.compile(r"([0-9a-f]+):([0-9a-f]+):([0-9a-f]+)\.([0-9a-f]+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Node:
    """A GPU, or a partition of one.

    `location` is bus << 8 | device << 3 of its PCI address. The bits of the function are left out,
    since some drivers store a partition's number there.
    """

    chip_id: int
    domain: int
    location: int
    num_cus: int
    num_xcds: int


def nodes() -> tuple[Node, ...]:
    """All GPUs that the driver shows; none if there is no driver or it cannot be read."""
    found = []
    try:
        files = sorted(NODES.glob("*/properties"))
    except OSError:
        return ()
    for file in files:
        try:
            lines = file.read_text(encoding="ascii", errors="replace").splitlines()
        except OSError:  # nodes of other users' devices cannot be read in a container
            continue
        facts = {}
        for line in lines:
            name, _, value = line.partition(" ")
            if value.strip().isdecimal():
                facts[name] = int(value)
        simds, per_cu = facts.get("simd_count", 0), facts.get("simd_per_cu", 0)
        if not simds or not per_cu:
            continue  # a CPU
        found.append(
            Node(
                facts.get("device_id", 0),
                facts.get("domain", 0),
                facts.get("location_id", 0) & 0xFFF8,
                simds // per_cu,
                facts.get("num_xcc", 0),
            )
        )
    return tuple(found)


def at(bus_id: str, num_cus: int) -> Node | None:
    """The GPU at a PCI address, in HIP's spelling, with a number of CUs.

    Partitions of a chip share its address, and those with equal numbers of CUs are alike. If nodes
    at the address differ in facts that matter here, they cannot be told apart, and None is
    returned.
    """
    parts = _BUS_ID.fullmatch(bus_id.strip())
    if parts is None:
        return None
    domain, bus, device = (int(part, 16) for part in parts.groups()[:3])
    location = bus << 8 | device << 3
    there = [node for node in nodes() if (node.domain, node.location) == (domain, location)]
    alike = {node for node in there if node.num_cus == num_cus} or set(there)
    return alike.pop() if len(alike) == 1 else None
