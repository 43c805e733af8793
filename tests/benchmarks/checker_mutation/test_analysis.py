"""The analyses that call mutants equivalent, held against cases that were worked out by hand."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.checker_mutation import idioms, registers as regs
from benchmarks.checker_mutation.clauses import overwrites
from benchmarks.checker_mutation.code import CodeError, disassemble
from benchmarks.checker_mutation.equivalence import WaitsOnPaths
from benchmarks.checker_mutation.generate import CLASSES, mutants
from benchmarks.checker_mutation.hazards import LLVM_ONLY, HazardAnalysis
from benchmarks.checker_mutation.kernel import KernelCode
from benchmarks.checker_mutation.uniform import decisions
from benchmarks.checker_mutation.waits import MAXIMUM, WaitAnalysis, counts, with_count
from tests.support.isa.assembler import assemble
from tests.support.shipped import shipped as shipped_kernels
from tests.support.vdev_library import DEFAULT_CPU


def code(*texts: str, arch: str = DEFAULT_CPU) -> KernelCode:
    """Bare instructions; branches give their distance in dwords."""
    return KernelCode(b"".join(assemble([*texts, "s_endpgm"], arch)), "", arch)


LONGEST, SHORTER = "attn_fwd_bf16_d128_rtne", "attn_fwd_bf16_d64_narrow_rtne"


@pytest.fixture(scope="module", params=[SHORTER, pytest.param(LONGEST, marks=pytest.mark.slow)])
def shipped(request: pytest.FixtureRequest) -> KernelCode:
    (kernel,) = (kernel for kernel in shipped_kernels() if kernel.name == request.param)
    return KernelCode(kernel.read_code_object(), kernel.symbol)


# -- instructions ----------------------------------------------------------------------------------


def numbers(file: int, *indices: int) -> set[int]:
    return {file + i for i in indices}


V, A, EXEC = regs.VGPR, regs.AGPR, set(regs.EXEC)
VCC, SCC = set(regs.VCC), {regs.SCC}


@pytest.mark.parametrize(
    ("text", "reads", "writes"),
    [
        ("s_add_u32 s4, s5, s6", {5, 6}, {4} | SCC),
        ("s_addc_u32 s4, s5, 0", {5} | SCC, {4} | SCC),
        ("s_mov_b64 s[4:5], exec", EXEC, {4, 5}),
        ("s_cselect_b32 s1, s2, s3", {2, 3} | SCC, {1}),
        ("s_cmp_lt_i32 s1, s2", {1, 2}, SCC),
        ("s_and_saveexec_b64 s[2:3], vcc", VCC | EXEC, {2, 3} | EXEC | SCC),
        ("s_or_b64 exec, exec, s[2:3]", {2, 3} | EXEC, EXEC | SCC),
        ("s_load_dwordx4 s[8:11], s[0:1], 0x10", {0, 1}, {8, 9, 10, 11}),
        ("v_add_f32_e32 v1, v2, v3", numbers(V, 2, 3) | EXEC, numbers(V, 1)),
        ("v_fmac_f32_e32 v1, v2, v3", numbers(V, 1, 2, 3) | EXEC, numbers(V, 1)),
        ("v_cmp_lt_i32_e32 vcc, 0, v1", numbers(V, 1) | EXEC, VCC),
        ("v_cmp_lt_i32_e64 s[4:5], 0, v1", numbers(V, 1) | EXEC, {4, 5}),
        ("v_cndmask_b32_e32 v0, v1, v2, vcc", numbers(V, 1, 2) | VCC | EXEC, numbers(V, 0)),
        (
            "v_addc_co_u32_e32 v0, vcc, v1, v2, vcc",
            numbers(V, 1, 2) | VCC | EXEC,
            numbers(V, 0) | VCC,
        ),
        (
            "v_mad_u64_u32 v[2:3], s[8:9], s4, v6, v[0:1]",
            {4} | numbers(V, 0, 1, 6) | EXEC,
            {8, 9} | numbers(V, 2, 3),
        ),
        ("v_readfirstlane_b32 s3, v0", numbers(V, 0) | EXEC, {3}),
        ("v_writelane_b32 v1, s2, 3", {2} | numbers(V, 1) | EXEC, numbers(V, 1)),
        ("v_div_fmas_f32 v0, v1, v2, v3", numbers(V, 1, 2, 3) | VCC | EXEC, numbers(V, 0)),
        (
            "v_mfma_f32_16x16x16_bf16 a[0:3], v[4:5], v[6:7], a[0:3]",
            numbers(V, 4, 5, 6, 7) | numbers(A, 0, 1, 2, 3) | EXEC,
            numbers(A, 0, 1, 2, 3),
        ),
        ("ds_read_b64 v[0:1], v2 offset:8", numbers(V, 2) | EXEC, numbers(V, 0, 1)),
        ("ds_write2_b32 v0, v1, v2 offset1:1", numbers(V, 0, 1, 2) | EXEC, set()),
        ("global_load_dwordx2 v[0:1], v[2:3], off", numbers(V, 2, 3) | EXEC, numbers(V, 0, 1)),
        ("global_store_dword v0, v1, s[2:3]", {2, 3} | numbers(V, 0, 1) | EXEC, set()),
        (
            "buffer_load_dword v1, v2, s[4:7], s8 offen",
            {4, 5, 6, 7, 8} | numbers(V, 2) | EXEC,
            numbers(V, 1),
        ),
        (
            "buffer_load_dword v2, s[4:7], 0 offen lds",
            {4, 5, 6, 7, regs.M0} | numbers(V, 2) | EXEC,
            set(),
        ),
        (
            "global_atomic_cmpswap v4, v0, v[2:3], s[6:7] sc0",
            {6, 7} | numbers(V, 0, 2, 3) | EXEC,
            numbers(V, 4),
        ),
        ("global_atomic_add v0, v1, s[6:7]", {6, 7} | numbers(V, 0, 1) | EXEC, set()),
        ("buffer_wbl2 sc1", set(), set()),
    ],
)
def test_registers(text: str, reads: set[int], writes: set[int]) -> None:
    (inst,) = disassemble(assemble([text])[0], 0)
    use = regs.use(inst)
    assert (set(use.reads), set(use.writes)) == (reads, writes)


def test_fields_of_waits() -> None:
    for field, maximum in MAXIMUM.items():
        for value in range(maximum + 1):
            word = with_count(0xBF8CCF7F, field, value)
            assert counts(word) == MAXIMUM | {field: value}
            (inst,) = disassemble(word.to_bytes(4, "little"), 0)
            if value < maximum:
                assert inst.text == f"s_waitcnt {field}({value})"
                assert assemble([inst.text]) == [inst.encoding]


def test_kernel_that_is_none() -> None:
    with pytest.raises(CodeError, match="ELF64"):
        KernelCode(b"\x7fELF" + bytes(60), "k")
    with pytest.raises(CodeError, match="is no instruction"):
        KernelCode(bytes.fromhex("ffffffff"), "")


def test_branches() -> None:
    kernel = code("s_cbranch_scc0 1", "s_branch 1", "s_nop 0", "s_barrier")
    assert kernel.successors == {0: (4, 8), 4: (12,), 8: (12,), 12: (16,), 16: ()}
    assert sorted(kernel.blocks()) == [0, 4, 8, 12]
    assert kernel.block_of(16) == 12


def far_branch(distance: int, pair: str = "s[4:5]") -> list[str]:
    """As LLVM writes one; `distance` counts from its second instruction."""
    low, high = pair.strip("s[]").split(":")
    return [
        f"s_getpc_b64 {pair}",
        f"s_add_u32 s{low}, s{low}, {distance & 0xFFFFFFFF:#x}",
        f"s_addc_u32 s{high}, s{high}, {distance >> 32 & 0xFFFFFFFF:#x}",
        f"s_setpc_b64 {pair}",
    ]


def test_far_branches() -> None:
    """Followed both ways, and the beginnings of blocks like those of others."""
    forth = code(*far_branch(0x20010), *["s_barrier"] * 0x8002)
    assert forth.successors[16] == (0x20014,)
    assert forth.predecessors[0x20014] == [16, 0x20010]
    assert forth.reachable == {0, 4, 12, 16, *(inst.pc for inst in forth.instructions[-3:])}
    assert sorted(forth.blocks()) == [0, 0x20014]
    back = code("s_nop 0", "s_nop 1", *far_branch(-8), "s_barrier")
    assert back.successors[back.instructions[5].pc] == (4,)
    assert back.reachable == {inst.pc for inst in back.instructions[:6]}


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["s_setpc_b64 s[4:5]"], r"by way of 0x0, s_setpc_b64 s\[4:5\]: only what s_getpc_b64"),
        (["s_nop 0", *far_branch(0x100)], "0x108 is no instruction of the kernel"),
        ([*far_branch(0)[:3], "s_nop 0", "s_setpc_b64 s[4:5]"], "only what s_getpc_b64"),
        ([*far_branch(0)[:3], "s_setpc_b64 s[6:7]"], r"the address is made in s\[4:5\]"),
        ([*far_branch(0)[:3], "s_swappc_b64 s[6:7], s[4:5]"], "only what s_getpc_b64"),
        ([*far_branch(0)[:2], *far_branch(0, "s[6:7]")[2:]], "does not change"),
        (
            [far_branch(0)[0], "s_add_u32 s4, s4, s6", *far_branch(0)[2:]],
            "s6 is no constant",
        ),
        (["s_cbranch_scc0 1", *far_branch(0xC)], "0x8, s_add_u32 .*: a branch leads to it"),
        ([*far_branch(8)], "0xc, s_setpc_b64 .*: a branch leads to it"),
    ],
)
def test_jumps_to_addresses_that_are_not_followed(texts: list[str], message: str) -> None:
    with pytest.raises(CodeError, match=message):
        code(*texts)


def test_branches_that_need_exec_zero() -> None:
    """A mask that some lane is in cannot skip; a narrowed one can, until it is restored."""
    kernel = code(
        "s_cbranch_execz 5",
        "s_and_saveexec_b64 s[2:3], vcc",
        "s_cbranch_execz 1",
        "s_nop 0",
        "s_or_b64 exec, exec, s[2:3]",
        "s_cbranch_execz 0",
    )
    assert kernel.successors[0] == (4,)
    assert kernel.successors[8] == (12, 16)
    assert kernel.successors[20] == (24,)
    lost = code("s_and_saveexec_b64 s[2:3], vcc", "s_mov_b32 s2, 0", "s_or_b64 exec, exec, s[2:3]")
    assert lost.reachable == {0, 4, 8, 12}


def test_branches_that_need_exec_nonzero() -> None:
    kernel = code(
        *("s_cbranch_execnz 1", "s_nop 0", "s_and_saveexec_b64 s[2:3], vcc"),
        *("s_cbranch_execnz 1", "s_nop 1", "s_cbranch_execz 0"),
    )
    assert kernel.successors[0] == (8,) and 4 not in kernel.reachable
    assert kernel.successors[12] == (16, 20)
    assert kernel.successors[20] == (24, 24)
    inside = code("s_and_saveexec_b64 s[2:3], vcc", "s_cbranch_execnz 1", "s_endpgm",
                  "s_cbranch_execz 0")  # fmt: skip
    assert inside.successors[12] == (16,)


# -- waits -----------------------------------------------------------------------------------------

LOAD = "global_load_dword v{}, v[2:3], off"


def too_early(*texts: str) -> set[tuple[int, int]]:
    """(consumer, producer) as indices of texts."""
    kernel = code(*texts)
    found = WaitAnalysis(kernel).too_early()
    return {(kernel.index[pair.consumer], kernel.index[pair.producer]) for pair in found}


def test_in_order() -> None:
    loads = [LOAD.format(i) for i in (4, 5, 6)]
    use = [f"v_mov_b32_e32 v0, v{i}" for i in (4, 5, 6)]
    assert too_early(*loads, "s_waitcnt vmcnt(0)", *use) == set()
    assert too_early(*loads, "s_waitcnt vmcnt(1)", *use) == {(6, 2)}
    assert too_early(*loads, "s_waitcnt vmcnt(2)", use[0], "s_waitcnt vmcnt(0)", *use) == set()
    assert too_early(*loads, *use) == {(3, 0), (4, 1), (5, 2)}


def test_stores_count() -> None:
    store = "global_store_dword v[2:3], v0, off"
    assert too_early(LOAD.format(4), store, "s_waitcnt vmcnt(1)", "v_mov_b32_e32 v0, v4") == set()
    assert too_early(store, LOAD.format(4), "s_waitcnt vmcnt(1)", "v_mov_b32_e32 v0, v4") == {
        (3, 1)
    }


def test_overwritten() -> None:
    assert too_early(LOAD.format(4), "v_mov_b32_e32 v4, 0") == {(1, 0)}
    # The later of two loads lands later.
    assert too_early(LOAD.format(4), LOAD.format(4), "s_waitcnt vmcnt(0)") == set()


def test_out_of_order() -> None:
    loads = ["s_load_dword s4, s[0:1], 0x0", "s_load_dword s5, s[0:1], 0x4"]
    assert too_early(*loads, "s_waitcnt lgkmcnt(1)", "s_mov_b32 s6, s4") == {(3, 0)}
    assert too_early(*loads, "s_waitcnt lgkmcnt(0)", "s_mov_b32 s6, s4") == set()
    # LDS operations stay in order whatever scalar loads do between them.
    mixed = ["ds_read_b32 v4, v0", loads[0], "ds_read_b32 v5, v0"]
    assert too_early(*mixed, "s_waitcnt lgkmcnt(1)", "v_mov_b32_e32 v0, v4") == set()
    assert too_early(*mixed, "s_waitcnt lgkmcnt(2)", "v_mov_b32_e32 v0, v4") == {(4, 0)}
    flat = ["flat_load_dword v4, v[2:3]", LOAD.format(5)]
    use = "v_mov_b32_e32 v0, v4"
    assert too_early(*flat, "s_waitcnt vmcnt(1) lgkmcnt(0)", use) == {(3, 0)}
    assert too_early(*flat, "s_waitcnt vmcnt(0) lgkmcnt(0)", use) == set()


def test_the_worse_path_counts() -> None:
    """A branch skips the younger load, so that a wait for one covers less."""
    texts = ["s_cbranch_scc0 2", LOAD.format(5), "s_waitcnt vmcnt(1)", "v_mov_b32_e32 v0, v4"]
    assert too_early(LOAD.format(4), *texts) == {(4, 0)}


def test_around_a_loop() -> None:
    texts = ["v_mov_b32_e32 v0, v4", LOAD.format(4), "s_cbranch_scc0 -4", "s_waitcnt vmcnt(0)"]
    assert too_early(*texts) == {(0, 1)}
    assert too_early("s_waitcnt vmcnt(0)", *texts[:2], "s_cbranch_scc0 -5") == set()


def test_published() -> None:
    assert too_early("ds_write_b32 v0, v1", "s_barrier") == {(1, 0)}
    assert too_early("ds_write_b32 v0, v1", "s_waitcnt lgkmcnt(0)", "s_barrier") == set()
    add, store = "global_atomic_add v0, v1, s[6:7]", "global_store_dword v[2:3], v0, off"
    assert too_early(store, "buffer_wbl2 sc1", add) == {(2, 1)}
    assert too_early(store, "buffer_wbl2 sc1", "s_waitcnt vmcnt(0)", add) == set()
    assert too_early("buffer_wbl2 sc1", add) == set()  # there is nothing to publish
    acquire = "global_load_dword v4, v[2:3], off sc1"
    assert too_early(acquire, "buffer_inv sc1") == {(1, 0)}
    assert too_early(acquire, "s_waitcnt vmcnt(0)", "buffer_inv sc1") == set()


def test_terms_of_a_sum_tell_nobody() -> None:
    """Of floating point numbers; of integers others may count by."""
    write, barrier = "ds_write_b32 v0, v1", "s_barrier"
    data = "global_store_dwordx4 v0, v[2:5], s[6:7] sc1"
    for add, tells in (("add_f32", False), ("add", True)):
        atomic = f"global_atomic_{add} v0, v1, s[6:7]"
        assert too_early(write, atomic) == ({(1, 0)} if tells else set())
        assert too_early(data, barrier, atomic) == ({(1, 0)} if tells else set())


def test_waits_before_others_are_told() -> None:
    """Of data that a flag or a counter tells of; a write-back stands for the whole workgroup."""
    data = "global_store_dwordx4 v0, v[2:5], s[6:7] sc1"
    short, add = "global_store_dwordx2 v0, v[2:3], s[6:7] sc1", "global_atomic_add v0, v1, s[6:7]"
    release, wait = "buffer_wbl2 sc1", "s_waitcnt vmcnt(0)"
    assert too_early(data, short) == set()  # both are data
    assert too_early(data, release, short) == {(2, 0)}
    assert too_early(data, release, wait, short) == set()
    assert too_early(data, "s_barrier", short) == set()
    assert too_early(data, release, "s_barrier", short) == {(2, 0), (3, 0)}
    assert too_early(data, release, wait, "s_barrier", short) == set()
    assert too_early(data, "s_barrier", add) == {(1, 0)}
    assert too_early(data, "s_barrier", "s_barrier", add) == {(2, 0)}
    assert too_early(data, wait, "s_barrier", add) == set()
    assert too_early(data, "s_barrier", release, wait, add) == set()
    assert too_early(data, "s_barrier", "s_cbranch_scc0 2", release, add) == {(1, 0)}


# -- wait states -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "states"),
    [
        ("v_readfirstlane_b32 s4, v0", "v_add_u32_e32 v1, s4, v2", 2),
        ("v_cmp_lt_i32_e64 s[4:5], 0, v1", "v_cndmask_b32_e64 v1, v2, v3, s[4:5]", 2),
        ("v_readfirstlane_b32 s4, v0", "global_load_dword v1, v0, s[4:5]", 5),
        ("v_readfirstlane_b32 s4, v0", "v_readlane_b32 s6, v2, s4", 4),
        ("v_cmp_lt_i32_e32 vcc, 0, v1", "v_div_fmas_f32 v0, v1, v2, v3", 4),
        ("v_mov_b32_e32 v1, 0", "v_mov_b32_dpp v2, v1 row_shr:1 row_mask:0xf bank_mask:0xf", 2),
        ("v_mov_b32_e32 v1, 0", "v_readfirstlane_b32 s4, v1", 1),
        ("v_exp_f32_e32 v1, v0", "v_add_f32_e32 v2, v1, v1", 1),
        ("v_exp_f32_e32 v1, v0", "v_exp_f32_e32 v2, v1", 0),
        ("v_dot2c_f32_f16_e32 v1, v2, v3", "v_cmp_u_f32_e32 vcc, v1, v1", 3),
        ("v_dot2c_f32_f16_e32 v1, v2, v3", "v_mov_b32_e32 v1, 0", 3),
        ("v_dot2c_f32_f16_e32 v1, v2, v3", "global_store_dword v[4:5], v1, off", 3),
        ("v_dot2c_f32_f16_e32 v1, v2, v3", "v_dot2c_f32_f16_e32 v4, v1, v3", 3),
        ("v_dot2c_f32_f16_e32 v1, v2, v3", "v_dot2c_f32_f16_e32 v1, v2, v3", 0),
        ("v_mov_b32_e32 v4, 0", "v_mfma_f32_16x16x16_bf16 v[0:3], v[4:5], v[6:7], 0", 2),
        ("global_store_dwordx4 v[2:3], v[4:7], off", "v_mov_b32_e32 v5, 0", 2),
        ("global_store_dwordx2 v[2:3], v[4:5], off", "v_mov_b32_e32 v5, 0", 0),
        ("s_mov_b32 m0, s4", "s_sendmsg sendmsg(MSG_INTERRUPT)", 1),
        ("s_mov_b32 m0, s4", "v_writelane_b32 v0, s5, m0", 0),
        *(
            (f"v_mfma_f32_{shape} v[0:{n}], {ab}, {ab}, 0", "v_add_f32_e32 v20, v0, v0", states)
            for shape, n, ab, states in (
                ("4x4x4_16b_f16", 3, "v[30:31]", 5),
                ("16x16x16_f16", 3, "v[30:31]", 7),
                ("32x32x8_f16", 15, "v[30:31]", 11),
                ("16x16x4_f32", 3, "v30", 10),
                ("32x32x2_f32", 15, "v30", 18),
            )
        ),
        (
            "v_mfma_f32_16x16x16_f16 v[0:3], v[30:31], v[30:31], 0",
            "v_mfma_f32_16x16x16_f16 v[0:3], v[30:31], v[30:31], v[0:3]",
            0,
        ),
        (
            "v_mfma_f32_16x16x16_f16 v[0:3], v[30:31], v[30:31], 0",
            "v_mfma_f32_16x16x16_f16 v[8:11], v[30:31], v[30:31], v[2:5]",
            5,
        ),
        (
            "v_mfma_f32_16x16x16_f16 v[0:3], v[30:31], v[30:31], 0",
            "v_mfma_f32_16x16x16_f16 v[8:11], v[0:1], v[30:31], 0",
            7,
        ),
        (
            "v_mfma_f32_16x16x16_f16 v[0:3], v[30:31], v[30:31], 0",
            "global_store_dword v[20:21], v2, off",
            7,
        ),
        (
            "v_mfma_f32_16x16x16_f16 v[0:3], v[30:31], v[30:31], v[8:11]",
            "v_mov_b32_e32 v9, 0",
            3,
        ),
    ],
)
def test_wait_states(first: str, second: str, states: int) -> None:
    for given in range(states + 2):
        nops = [f"s_nop {given - 1}"] if 0 < given <= 16 else ["s_nop 0"] * given
        missing = HazardAnalysis(code(first, *nops, second)).missing()
        assert bool(missing) == (given < states), (given, missing)


SWAP = "v_permlane32_swap_b32_e32 v1, v2"


@pytest.mark.parametrize(
    ("first", "second", "states"),
    [
        ("v_mov_b32_e32 v1, 0", SWAP, 2),
        ("v_mov_b32_e32 v2, 0", SWAP, 2),
        ("v_cmpx_eq_u32_e32 vcc, v8, v9", SWAP, 4),
        *(
            (f"v_mfma_f32_{shape} v[0:{n}], {ab}, {ab}, 0", "v_add_f32_e32 v20, v0, v0", states)
            for shape, n, ab, states in (
                ("4x4x4_16b_f16", 3, "v[30:31]", 5),
                ("16x16x32_bf16", 3, "v[30:33]", 8),
                ("32x32x16_bf16", 15, "v[30:33]", 12),
                ("16x16x128_f8f6f4", 3, "v[30:37]", 12),
                ("16x16x4_f32", 3, "v30", 10),
            )
        ),
        (
            "v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[30:33], v[34:37], 0 cbsz:4 blgp:4",
            "v_add_f32_e32 v20, v0, v0",
            8,
        ),
        (
            "v_mfma_f32_16x16x32_f16 v[0:3], v[30:33], v[30:33], 0",
            "v_mfma_f32_16x16x32_f16 v[8:11], v[30:33], v[30:33], v[2:5]",
            6,
        ),
    ],
)
def test_wait_states_of_gfx950(first: str, second: str, states: int) -> None:
    for given in (states - 1, states):
        missing = HazardAnalysis(code(first, f"s_nop {given - 1}", second, arch="gfx950")).missing()
        assert bool(missing) == (given < states), (given, missing)


@pytest.mark.parametrize(("source", "states"), [("v1, v2", 2), ("v2, v1", 0)])
def test_dpp_waits_for_what_lanes_exchange(source: str, states: int) -> None:
    texts = ["v_mov_b32_e32 v1, 0", f"v_add_f32_dpp v3, {source} row_shr:1"]
    texts[1] += " row_mask:0xf bank_mask:0xf"
    pairs = HazardAnalysis(code(*texts)).missing()
    assert {pair.required for pair in pairs if pair.rule not in LLVM_ONLY} == {states} - {0}


def test_wait_states_on_the_shorter_path() -> None:
    texts = ["v_exp_f32_e32 v1, v0", "s_cbranch_scc0 1", "s_nop 3", "v_add_f32_e32 v2, v1, v1"]
    (pair,) = HazardAnalysis(code("v_readfirstlane_b32 s4, v0", "s_cbranch_scc0 1", "s_nop 3",
                                  "v_add_u32_e32 v2, s4, v1")).missing()  # fmt: skip
    assert (pair.required, pair.states) == (2, 1)
    assert not HazardAnalysis(code(*texts)).missing()


# -- clauses ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ((LOAD.format(4), LOAD.format(2)), {(1, 0), (1, 1)}),
        ((LOAD.format(2), LOAD.format(4)), {(0, 0), (0, 1)}),
        ((LOAD.format(2),), set()),
        ((LOAD.format(4), "s_nop 0", LOAD.format(2)), set()),
        ((LOAD.format(4), LOAD.format(5)), set()),
        ((LOAD.format(4), "s_load_dword s4, s[0:1], 0x0", LOAD.format(2)), set()),
        (("s_load_dword s4, s[0:1], 0x0", "s_load_dword s0, s[2:3], 0x4"), {(1, 0)}),
        ((LOAD.format(4), "ds_read_b32 v2, v0", LOAD.format(5)), set()),
        ((LOAD.format(4), "buffer_inv sc1", LOAD.format(2)), set()),
    ],
)
def test_clauses(texts: tuple[str, ...], expected: set[tuple[int, int]]) -> None:
    kernel = code("s_mov_b32 s4, 0", *texts)
    for at in kernel.instructions[1:-1]:
        found = overwrites(kernel, at.pc, at.size)
        pairs = {(kernel.index[writer] - 1, kernel.index[reader] - 1) for writer, reader in found}
        assert pairs == (expected if len(texts) == 2 else set())


def test_clause_that_a_change_makes() -> None:
    kernel = code(LOAD.format(4), "s_nop 0", LOAD.format(2), "v_mov_b32_e32 v0, 0")
    nop, load = kernel.instructions[1:3]
    assert not overwrites(kernel, kernel.start, kernel.end)
    changed = kernel.changed(nop.pc, load.encoding + nop.encoding)
    assert overwrites(changed, nop.pc, 12) == {(nop.pc, 0), (nop.pc, nop.pc)}


# -- idioms ----------------------------------------------------------------------------------------


def arguments(kernel: KernelCode, kind: str) -> list[str]:
    """The first words of the arguments about its mutants of a class."""
    found = (idioms.argument(kernel, m) for m in mutants(kernel, False) if m.kind == kind)
    return [" ".join(argument.split()[:4]) for argument in found]


AGAIN = ("s_barrier", "s_load_dwordx4 s[12:15], s[0:1], 0x0", "s_waitcnt lgkmcnt(0)")


@pytest.mark.parametrize(
    ("before", "compare", "other", "expected"),
    [
        ((), "v_cmp_neq_f32_e64 s[2:3], 0, v4", "0xff800000", ["the additional lanes take", ""]),
        (
            *(AGAIN, "v_cmp_neq_f32_e64 s[2:3], 0, v4", "0xff800000"),
            ["the additional lanes take", "the disabled lanes have"],
        ),
        (AGAIN, "v_cmp_neq_f32_e64 s[2:3], 0, v3", "0xff800000", ["", ""]),  # another's sum
        (AGAIN, "v_cmp_neq_f32_e64 s[2:3], 0, v4", "0", ["", ""]),
    ],
)
def test_logarithm_of_a_sum(
    before: tuple[str, ...], compare: str, other: str, expected: list[str]
) -> None:
    kernel = code(
        *(*before, compare, f"v_mov_b32_e32 v5, {other}"),
        *("s_and_saveexec_b64 s[6:7], s[2:3]", "v_log_f32_e32 v5, v4", "s_nop 0"),
        *("s_or_b64 exec, exec, s[6:7]", "global_store_dword v[2:3], v5, off"),
    )
    assert arguments(kernel, "EXEC") == expected


def test_barrier_of_another_try() -> None:
    # It is needed: behind it the words are zeroed that other waves have still to read.
    assert arguments(code(*AGAIN), "barrier") == [""]


@pytest.mark.parametrize(("limit", "same"), [("-1.0", True), ("s4", False)])
def test_flags_that_are_one(limit: str, same: bool) -> None:
    kernel = code(
        *(f"v_cmp_gt_f32_e32 vcc, {limit}, v1", "v_cndmask_b32_e64 v2, 1.0, 0, vcc"),
        *("ds_bpermute_b32 v3, v0, v2", "s_waitcnt lgkmcnt(0)", "v_max_f32_e32 v3, v3, v3"),
        *("v_max_f32_e32 v2, v2, v3", "ds_bpermute_b32 v3, v0, v2", "ds_bpermute_b32 v4, v0, v1"),
    )
    expected = "the value is the" if same else ""
    assert arguments(kernel, "LDS offset") == [expected, expected, ""]


@pytest.mark.parametrize(
    ("limit", "between", "branch", "taken"),
    [
        ("-1.0", "s_nop 0", "s_cbranch_scc0 0", True),
        ("-1.0", "s_nop 0", "s_cbranch_scc1 0", False),
        ("-1.0", "s_add_u32 s5, s5, 1", "s_cbranch_scc0 0", False),
        ("-1.0", "s_cbranch_vccz 0", "s_cbranch_scc0 0", False),
        ("1.0", "s_nop 0", "s_cbranch_scc0 0", False),
    ],
)
def test_sums_are_not_below_minus_one(limit: str, between: str, branch: str, taken: bool) -> None:
    kernel = code(
        *(f"s_mov_b32 s4, {limit}", "v_cmp_nlt_f32_e64 s[2:3], v1, s4", "s_xor_b32 s5, s5, 1"),
        *("s_cmp_eq_u64 s[2:3], 0", between, branch),
    )
    branches = [i.pc for i in kernel.instructions if i.mnemonic.startswith("s_cbranch_scc")]
    assert idioms.never_below(kernel) == (dict.fromkeys(branches, True) if taken else {})


# -- the shipped kernel ----------------------------------------------------------------------------


def test_shipped_kernel_is_clean(shipped: KernelCode) -> None:
    assert not WaitsOnPaths(shipped).too_early()
    assert not HazardAnalysis(shipped).missing()
    assert not overwrites(shipped, shipped.start, shipped.end - shipped.start)


def test_mutants_change_one_place(shipped: KernelCode) -> None:
    """Decoded again, a mutant differs where it says; branches still go to the same instructions."""
    found = mutants(shipped, has_semaphores=False)
    assert len({mutant.name for mutant in found}) == len(found)
    none = {"num_records", "semaphore"}
    if all(inst.mnemonic != "s_barrier" for inst in shipped.instructions):
        none.add("barrier")
    assert {mutant.kind for mutant in found} == set(CLASSES) - none
    before = [inst.text for inst in shipped.instructions]
    for mutant in found[:: max(1, len(found) // 20)]:
        mutated = KernelCode(shipped.patched(mutant.at, mutant.encoding), shipped.symbol)
        after = [inst.text for inst in mutated.instructions]
        if len(mutant.encoding) <= 8 and mutant.kind not in ("swap", "s_nop"):
            changed = [
                pc
                for pc in shipped.index
                if pc not in mutated.index or shipped.at(pc).text != mutated.at(pc).text
            ]
            assert changed == [mutant.pc]
        else:
            assert sorted(before) == sorted(after) or "-> s_nop 0" in mutant.what
        old, new = (Counter(k.at(t).text for t in k.targets) for k in (shipped, mutated))
        assert old.total() == new.total()
        assert (old - new).total() <= 1  # the changed instruction may be a target itself


@pytest.mark.parametrize(
    ("condition", "branch", "waits"),
    [
        ("s_cselect_b64 s[4:5], -1, 0", "s_cbranch_vccnz 1", True),
        ("s_cselect_b64 s[4:5], -1, 0", "s_cbranch_vccz 1", False),  # waits if nothing is loaded
        ("s_cselect_b64 s[4:5], s[8:9], 0", "s_cbranch_vccnz 1", False),  # of some lanes
        ("s_and_b64 s[4:5], s[10:11], s[12:13]", "s_cbranch_vccnz 1", True),
        ("s_and_b64 s[4:5], s[10:11], s[14:15]", "s_cbranch_vccnz 1", False),  # of some lanes
        ("s_xor_b64 s[4:5], s[10:11], -1", "s_cbranch_vccnz 1", True),
    ],
)
def test_branches_on_one_condition(condition: str, branch: str, waits: bool) -> None:
    """A load under a condition, and the wait for it where the same condition is not negated."""
    kernel = code(
        *("s_cselect_b64 s[10:11], -1, 0", "s_cselect_b64 s[12:13], 0, -1"),
        *(condition, "s_and_b64 vcc, exec, s[4:5]", "s_cbranch_vccz 2"),
        "global_load_dword v0, v[2:3], off",
        *("v_cndmask_b32_e64 v5, 0, 1, s[4:5]", "v_cmp_ne_u32_e64 s[6:7], 1, v5"),
        *("s_and_b64 vcc, exec, s[6:7]", branch),
        *("s_waitcnt vmcnt(0)", "v_mov_b32_e32 v1, v0"),
    )
    assert len(WaitAnalysis(kernel).too_early()) == 1
    assert (not WaitsOnPaths(kernel).too_early()) == waits
    if waits:
        (wait,) = (i for i in kernel.instructions if i.mnemonic == "s_waitcnt")
        weaker = with_count(wait.word, "vmcnt", 1).to_bytes(4, "little")
        assert len(WaitsOnPaths(kernel).after(wait.pc, weaker)) == 1


def test_a_condition_that_a_loop_makes_anew() -> None:
    """It may differ from one turn to the next."""
    kernel = code(
        *("s_cselect_b64 s[4:5], -1, 0", "s_and_b64 vcc, exec, s[4:5]", "s_cbranch_vccz 2"),
        "global_load_dword v0, v[2:3], off",
        *("s_and_b64 vcc, exec, s[4:5]", "s_cbranch_vccz 1", "s_waitcnt vmcnt(0)"),
        *("s_cbranch_scc1 -9", "v_mov_b32_e32 v1, v0"),
    )
    assert not decisions(kernel) and len(WaitsOnPaths(kernel).too_early()) == 1


@pytest.mark.parametrize(
    ("loads", "stays"),
    [
        (("s_load_dword s8, s[0:1], 0x10", "s_load_dword s9, s[0:1], 0x14"), True),
        (("s_load_dwordx2 s[8:9], s[0:1], 0x10", "s_nop 0"), True),
        (("s_load_dword s8, s[0:1], 0x10", "s_load_dword s9, s[2:3], 0x14"), False),
        (("s_load_dword s8, s[0:1], 0x10", "s_mov_b32 s9, s11"), False),
        (("s_load_dword s8, s[0:1], 0x10", "s_mov_b32 s9, s8"), False),  # copies are not followed
        (("s_load_dword s8, s[0:1], s12", "s_mov_b32 s9, s8"), False),
        (("s_load_dwordx2 s[8:9], s[0:1], 0x10", "s_mov_b32 s0, s11"), False),
    ],
)
def test_a_condition_of_arguments_stays_from_turn_to_turn(
    loads: tuple[str, str], stays: bool
) -> None:
    turn = [
        *(*loads, "s_waitcnt lgkmcnt(0)"),
        *("s_cmp_lt_i32 s8, s9", "s_cselect_b64 s[4:5], -1, 0"),
        *("s_and_b64 vcc, exec, s[4:5]", "s_cbranch_vccz 2", "global_load_dword v0, v[2:3], off"),
        *("s_and_b64 vcc, exec, s[4:5]", "s_cbranch_vccz 1", "s_waitcnt vmcnt(0)"),
    ]
    dwords = sum(map(len, assemble(turn, DEFAULT_CPU))) // 4
    kernel = code(*turn, f"s_cbranch_scc1 {-dwords - 1}", "v_mov_b32_e32 v1, v0")
    assert kernel.instructions[-3].target == 0
    assert bool(decisions(kernel)) == stays == (not WaitsOnPaths(kernel).too_early())


def test_loops_but_for_that_of_another_attempt() -> None:
    """A wait in a loop leaves to others what they read; one behind it does not."""
    again = ("s_barrier", "s_load_dwordx4 s[4:7], s[0:1], 0x0")
    kernel = code(*again, "s_nop 0", "s_cbranch_scc0 -2", "s_nop 1", "s_cbranch_scc1 -7")
    assert [idioms.is_in_a_loop(kernel, i.pc) for i in kernel.instructions[:6]] == [
        *(True, False, True, True, False, False),
    ]


@pytest.mark.parametrize(
    ("name", "of_kind"),
    [
        ("attn_merge_bf16_d128_rtne", 2),
        pytest.param("attn_merge_bf16_d128_rtne", 8, marks=pytest.mark.slow),
        pytest.param("attn_merge_bf16_d128_rtne", 1000, marks=pytest.mark.slow),
        pytest.param(SHORTER, 2, marks=pytest.mark.slow),
        pytest.param(SHORTER, 40, marks=pytest.mark.slow),
    ],
)
def test_analysis_of_a_change_is_that_of_the_changed_code(name: str, of_kind: int) -> None:
    """What the judge works out from the unmutated kernel's states, and from the start."""
    (row,) = (kernel for kernel in shipped_kernels() if kernel.name == name)
    kernel = KernelCode(row.read_code_object(), row.symbol)
    waits, hazards = WaitAnalysis(kernel), HazardAnalysis(kernel)
    compared = Counter[str]()
    found = mutants(kernel, False)
    chosen = []
    for kind in ("wait deleted", "wait weakened", "s_nop", "swap"):
        alike = [mutant for mutant in found if mutant.kind == kind]
        chosen += alike[:: max(1, len(alike) // of_kind)]
    for mutant in chosen:
        changed = kernel.changed(mutant.at, mutant.encoding)
        of_change = changed, mutant.at, len(mutant.encoding)
        fresh = KernelCode(changed.bytes_at(changed.start, changed.end - changed.start), "")
        assert [i.text for i in changed.instructions] == [i.text for i in fresh.instructions]
        early = WaitAnalysis(changed).too_early()
        assert waits.after(*of_change) | waits.too_early() >= early
        assert waits.after(*of_change) - waits.too_early() == early - waits.too_early()
        missing = HazardAnalysis(changed).missing()
        assert hazards.missing_after(*of_change) - hazards.missing() == missing - hazards.missing()
        compared[f"{mutant.kind} {changed.same_paths}"] += bool(early or missing)
    assert {"wait deleted True", "swap True"} <= compared.keys() and compared.total() > 2
