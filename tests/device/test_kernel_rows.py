"""The manifest's rows and their argument blocks, against independent layouts and hashes."""

import ctypes
import dataclasses
import hashlib
import re
import struct

import pytest
from hypothesis import given, settings, strategies as st

from amdattn.device import kernarg, manifest
from amdattn.errors import CorruptKernel, ManifestError
from amdattn.ops.attention import select
from amdattn.ops.attention.select import MERGE_GRID, WORK_GRID

KERNEL, MERGE = (
    next(row for row in manifest.kernels() if row.op == op and row.grid in grids)
    for op, grids in (
        (select.ATTENTION, [WORK_GRID]),
        (select.MERGE, [MERGE_GRID]),
    )
)
ADDRESS = st.integers(0, 2**64 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)


class AttnFwdArgs(ctypes.Structure):
    """The documented block, laid out by ctypes instead of cffi."""

    # First what a workgroup needs first.
    _fields_ = (
        *((name, ctypes.c_uint64) for name in ("q", "k", "v", "cu_seqlens_q", "cu_seqlens_kv")),
        *(
            (f"{name}_stride_{axis}", ctypes.c_int64)
            for name in ("q", "k", "v")
            for axis in ("batch", "seq", "head")
        ),
        *((name, ctypes.c_int32) for name in ("num_heads_q", "seqlen_q", "seqlen_kv")),
        ("softmax_scale_log2", ctypes.c_float),
        *((f"window_{side}", ctypes.c_int32) for side in ("left", "right")),
        *((name, ctypes.c_int32) for name in ("top_left", "q_tiles", "whole_tiles")),
        *((name, ctypes.c_int32) for name in ("head_dim", "head_dim_v", "column_groups")),
        *(
            (f"{name}_{field}", kind)
            for name in ("q_tiles", "num_heads_q", "group")
            for field, kind in (("inverse", ctypes.c_uint32), ("shift", ctypes.c_int32))
        ),
        *((name, ctypes.c_uint64) for name in ("scales", "o", "lse", "sinks")),
        *((f"partial_{name}", ctypes.c_uint64) for name in ("o", "max_sum")),
        *((name, ctypes.c_uint64) for name in ("counters", "generation")),
        *((f"o_stride_{axis}", ctypes.c_int64) for axis in ("batch", "seq", "head")),
        *((f"lse_stride_{axis}", ctypes.c_int64) for axis in ("batch", "head")),
        *((name, ctypes.c_int32) for name in ("batch", "num_heads_kv", "parts")),
        ("softcap_log2", ctypes.c_float),
        ("part_blocks", ctypes.c_int32),
        *((f"merge_{name}", ctypes.c_int32) for name in ("tiles", "workgroups")),
        ("log2_rest", ctypes.c_float),
        *((name, ctypes.c_int32) for name in ("keeps_floats", "padding")),
    )


_VALUES = {
    ctypes.c_uint64: ADDRESS,
    ctypes.c_int64: INT64,
    ctypes.c_int32: INT32,
    ctypes.c_uint32: st.integers(0, 2**32 - 1),
    ctypes.c_float: st.floats(width=32, allow_nan=False),
}


@settings(deadline=None)
@given(values=st.tuples(*(_VALUES[kind] for _, kind in AttnFwdArgs._fields_)))
def test_packing_matches_ctypes(values):
    packer = kernarg.packer(KERNEL)
    block = bytearray(packer.size)
    packer.pack_into(block, 0, *values)
    assert bytes(block) == bytes(AttnFwdArgs(*values))
    assert packer.unpack(bytes(block)) == dict(zip(packer.names, values, strict=True))


def test_a_merge_takes_the_arguments_of_its_parts():
    assert MERGE.kernarg == KERNEL.kernarg


def test_layout_is_the_manifests():
    assert kernarg.packer(KERNEL).size == KERNEL.kernarg.size == ctypes.sizeof(AttnFwdArgs)
    for name, offset, size, _ in KERNEL.kernarg.fields:
        field = getattr(AttnFwdArgs, name)
        assert (field.offset, field.size) == (offset, size)


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1])
def test_out_of_range_values_are_refused(value):
    packer = kernarg.packer(KERNEL)
    values = [0] * len(packer.names)
    values[packer.names.index("seqlen_q")] = value
    with pytest.raises(struct.error):
        packer.pack_into(bytearray(packer.size), 0, *values)


def test_a_manifest_that_disagrees_with_the_header():
    name, offset, size, c_type = KERNEL.kernarg.fields[3]
    fields = list(KERNEL.kernarg.fields)
    fields[3] = (name, offset + 4, size, c_type)
    spec = dataclasses.replace(KERNEL.kernarg, fields=tuple(fields))
    with pytest.raises(ManifestError, match="laid out differently"):
        kernarg.Packer(spec)
    with pytest.raises(ManifestError, match="cannot read struct NoSuchArgs"):
        kernarg.Packer(dataclasses.replace(KERNEL.kernarg, struct="NoSuchArgs"))


def test_code_objects_have_the_recorded_hash(tmp_path):
    for kernel in manifest.kernels():
        assert hashlib.sha256(kernel.read_code_object()).hexdigest() == kernel.sha256
    damaged = tmp_path / "damaged.hsaco"
    damaged.write_bytes(KERNEL.read_code_object()[:-1] + b"?")
    with pytest.raises(CorruptKernel, match=r"damaged\.hsaco has sha256"):
        dataclasses.replace(KERNEL, path=damaged).read_code_object()
    with pytest.raises(CorruptKernel, match="cannot read"):
        dataclasses.replace(KERNEL, path=tmp_path / "missing").read_code_object()


@pytest.mark.parametrize("name", ["gone", "file"])
def test_a_variable_that_names_no_folder(tmp_path, monkeypatch, name):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AMDATTN_KERNEL_DIR", str(tmp_path / name))
    named = re.escape(f"AMDATTN_KERNEL_DIR={str(tmp_path / name)!r} is no folder")
    with pytest.raises(ManifestError, match=f"^{named}$"):
        manifest.kernels()


def test_facts_are_never_assumed():
    for matter in ("params", "tile", "accepts"):
        facts = getattr(KERNEL, matter)
        assert "causal_" not in facts and len(facts) == len(list(facts)) > 0
        with pytest.raises(ManifestError, match=f"states no 'causal_' in '{matter}'"):
            facts["causal_"]


def test_facts_under_their_former_names():
    for name, now in (
        ("head_dim", KERNEL.params["head_dim"]),
        ("head_dim_v", KERNEL.params["head_dim_v"]),
        ("q_tile", KERNEL.tile["q"]),
        ("kv_tile", KERNEL.tile["kv"]),
        ("constraints", KERNEL.accepts),
    ):
        with pytest.warns(DeprecationWarning, match=f"KernelSpec.{name} is now "):
            assert getattr(KERNEL, name) == now
    with pytest.raises(AttributeError, match="no attribute 'm_tile'"):
        _ = KERNEL.m_tile


def test_a_grid_of_another_rule():
    KERNEL.check_grid(WORK_GRID)
    with pytest.raises(ManifestError, match=f"has grid '{WORK_GRID}', not '{MERGE_GRID}'"):
        KERNEL.check_grid(MERGE_GRID)
