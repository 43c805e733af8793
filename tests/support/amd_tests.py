"""Tests of HIP's ABI that do not hold on AMD's own runtime, each with its reason.

All others of tests/virtual_device/hip run on both (tests/device/test_amd_runtime.py).
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

_SYMBOLS = "of the library's own symbols and sources"
_REPORTS = "of reports and options that AMD's runtime does not have"
_FAULTS = "a fault ends AMD's runtime, or the process; tests/device/test_amd_runtime.py has it"
_STALE = "AMD's handles are addresses: a stale one ends the process"
_POINTERS = "AMD's reads every pointer that it is given"
_HOST_SYMBOL = "AMD's takes the host symbol of a compiler's program"
_NOT_IN_7_2 = "AMD's 7.2 has no such call"
_SIGNALS = "AMD's waits in a call that no signal ends"
_MACHINES = "of the virtual device's tables, or of architectures that AMD's does not know"
_TABLE = "answers otherwise, as docs/real-gpu.md says"

# What only our own runtime answers so, by test or file.
ONLY_OURS = {
    "test_abi.py": _SYMBOLS,
    "test_faults.py": _FAULTS,
    "test_checked_faults.py": _FAULTS,
    "test_graph.py::test_fault_in_a_graph": _FAULTS,
    "test_host_pointers.py": _POINTERS,
    "test_interruption.py": _SIGNALS,
    "test_machines.py::test_machines_are_the_devices_of_planning": _MACHINES,
    "test_machines.py::test_a_machine_is_what_planning_takes_it_for": _MACHINES,
    "test_machines.py::test_architectures_are_those_of_planning": _MACHINES,
    "test_machines.py::test_a_made_up_architecture_runs_a_kernel": _MACHINES,
    "test_machines.py::test_every_architecture_has_instructions_of_its_own": _MACHINES,
    "test_machines.py::test_what_an_instruction_is_does_not_hang_on_its_name_or_opcode": _MACHINES,
    "test_machines.py::test_a_default_architecture_lacks_what_another_has": _FAULTS,
    "test_machines.py::test_matrix_instructions_take_what_their_architecture_says": _MACHINES,
    "test_machines.py::test_the_model_takes_its_constants_from_the_architecture": _MACHINES,
    "test_lds_sizes.py": "needs a compiler: tests/device/test_amd_runtime.py has it",
    "test_memory.py::test_symbols": _HOST_SYMBOL,
    "test_module.py::test_all_function_attributes": _HOST_SYMBOL,
    "test_module.py::test_cooperative_launch_of_a_function": _HOST_SYMBOL,
    "test_module.py::test_dynamic_lds_that_is_left": _HOST_SYMBOL,
    "test_module.py::test_kernels_of_libraries": _NOT_IN_7_2,
    "test_module.py::test_arguments_that_cannot_be_read": _POINTERS,
    "test_module.py::test_grids_of_more_lanes_than_32_bits_count": _TABLE,
    "test_process.py::test_child_of_fork_is_refused": _TABLE,
    "test_process.py::test_every_call_survives_zeros": _POINTERS,
    "test_process.py::test_exit_with_work_in_flight": "AMD's waits at the end of the process",
    "test_process.py::test_launch_overhead": "of our own runtime's cost",
    "test_stream.py::test_dead_and_foreign_handles": _STALE,
    "test_stream.py::test_host_function_cannot_wait": "AMD's waits for ever",
    "test_stream.py::test_per_thread_stream": _TABLE,
}
# What our own does not have.
ONLY_AMDS = {
    "test_virtual_memory.py::test_mapped_memory": "the virtual device's own runtime has none of it",
    "test_virtual_memory.py::test_access_to_nothing": "the virtual device's own runtime has none",
}


def skip_others(items: Iterable[pytest.Item], on_amds: bool) -> None:
    """Mark what does not hold on the runtime that is tested."""
    reasons = ONLY_OURS if on_amds else ONLY_AMDS
    for item in items:
        name = f"{item.path.name}::{getattr(item, 'originalname', item.name)}"
        reason = reasons.get(name) or reasons.get(item.path.name)
        if reason and item.path.parent.name == "hip":
            item.add_marker(pytest.mark.skip(reason=reason))
