"""Stated arguments: about places that survive a rebuild, and about no others."""

from __future__ import annotations

from typing import Any

import pytest

from amdattn.device import manifest
from benchmarks.checker_mutation.arguments import ARGUMENTS
from benchmarks.checker_mutation.generate import mutants
from benchmarks.checker_mutation.kernel import KernelCode
from benchmarks.checker_mutation.sites import Pattern, smallest, window
from benchmarks.checker_mutation.stated import Arguments, Stated
from tests.support.isa.assembler import assemble
from tests.support.vdev_library import DEFAULT_CPU

# A masked store; the same with other registers, elsewhere; the same with another offset.
STORE = (
    "v_cmp_gt_i32_e32 vcc, s4, v2",
    "s_and_saveexec_b64 s[6:7], vcc",
    "s_cbranch_execz 2",
    "global_store_dword v[8:9], v3, off",
    "s_or_b64 exec, exec, s[6:7]",
)
REBUILT = (
    "v_cmp_gt_i32_e32 vcc, s19, v77",
    "s_and_saveexec_b64 s[36:37], vcc",
    "s_cbranch_execz 3",
    "global_store_dword v[80:81], v5, off",
    "s_or_b64 exec, exec, s[36:37]",
)
OTHER = tuple(text.replace("off", "off offset:4") for text in STORE)
SITE = """
      v_cmp_gt_i32 vcc, s, v
    > s_and_saveexec_b64 s[2], vcc
      s_cbranch_execz
      global_store_dword v[2], v, off
"""


def code(*texts: str) -> KernelCode:
    return KernelCode(b"".join(assemble([*texts, "s_endpgm"], DEFAULT_CPU)), "", DEFAULT_CPU)


def arguments(kernel: KernelCode, **options: Any) -> Arguments:
    given = Stated("k", "EXEC", "said", SITE, archs=(DEFAULT_CPU,), **options)
    return Arguments([given], "k", kernel)


def pardoned(kernel: KernelCode, found: Arguments) -> list[int]:
    """Indices of instructions."""
    return [kernel.index[m.pc] for m in mutants(kernel, False) if found.reason(m)]


def test_a_site_is_found_where_a_rebuild_has_put_it() -> None:
    for kernel, at in ((code(*STORE), 1), (code("v_mov_b32_e32 v0, 0", *REBUILT), 2)):
        found = arguments(kernel)
        assert not found.stale and not found.without_mutant(mutants(kernel, False))
        assert pardoned(kernel, found) == [at]


@pytest.mark.parametrize(
    ("texts", "count"), [((), 0), (OTHER, 0), ((*STORE, *REBUILT), 2), (STORE[1:], 0)]
)
def test_an_argument_of_fewer_or_more_places_is_stale(texts: tuple[str, ...], count: int) -> None:
    kernel = code(*texts)
    found = arguments(kernel)
    (stale,) = found.stale
    assert f"is for 1 places, and there are {count} of" in stale and "s_and_saveexec_b64" in stale
    assert not pardoned(kernel, found)


def test_an_argument_about_some_of_the_places() -> None:
    kernel = code(*STORE, *OTHER, *REBUILT)
    found = arguments(kernel, sites=2, which=(1,))
    assert not found.stale and pardoned(kernel, found) == [11]
    assert pardoned(kernel, arguments(kernel, sites=2)) == [1, 11]


def test_an_argument_is_about_a_kernel_of_an_architecture() -> None:
    kernel = code(*STORE)
    for name, archs in (("other", (DEFAULT_CPU,)), ("k", ("gfx950",))):
        found = Arguments([Stated(name, "EXEC", "said", SITE, archs=archs)], "k", kernel)
        assert not found.stale and not pardoned(kernel, found)


def test_arguments_without_a_mutant() -> None:
    kernel = code(*STORE)
    given = [Stated("k", kind, "said", SITE, archs=(DEFAULT_CPU,)) for kind in ("EXEC", "s_nop")]
    assert Arguments(given, "k", kernel).without_mutant(mutants(kernel, False)) == [
        "an argument is about s_nop at 0x4, where there is no such mutant"
    ]
    (stale,) = Arguments([given[0]] * 2, "k", kernel).stale
    assert stale == "two arguments are about EXEC at 0x4"


def test_numbers() -> None:
    kernel = code("s_nop 1", "s_nop 2", *(f"v_mov_b32_e32 v0, {x}" for x in ("0x80", "1.0", "-1")))
    text = "> s_nop #\n s_nop 2\n" + " v_mov_b32 v, #\n" * 3
    assert Pattern(text).find(kernel) == (0,)
    assert not Pattern(text.replace("s_nop 2", "s_nop 3")).find(kernel)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("s_nop 0\n s_nop 0\n s_nop 0\n s_nop 0", "0 lines of a pattern are its site"),
        ("> s_nop 0\n> s_nop 0\n s_nop 0\n s_nop 0", "2 lines of a pattern are its site"),
        ("> s_nop 0\n s_nop 0\n s_nop 0", "needs 3 instructions besides its site"),
    ],
)
def test_no_pattern(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Pattern(text)


def test_no_argument() -> None:
    with pytest.raises(ValueError, match="'typo' must be among"):
        Stated("k", "typo", "said", SITE)
    with pytest.raises(ValueError, match="must be below sites=1"):
        Stated("k", "EXEC", "said", SITE, which=(1,))


def test_the_smallest_pattern_of_a_place() -> None:
    kernel = code(*STORE, *OTHER, *REBUILT)
    text = smallest(kernel, kernel.instructions[6].pc)
    assert Pattern(text).find(kernel) == (kernel.instructions[6].pc,)
    assert window(kernel, 4, 1, 2) == "\n".join(
        ["  v_cmp_gt_i32 vcc, s, v", "> s_and_saveexec_b64 s[2], vcc", "  s_cbranch_execz",
         "  global_store_dword v[2], v, off"]
    )  # fmt: skip


OWN = sorted(
    {(one.kernel, arch) for one in ARGUMENTS for arch in one.archs if " " not in one.kernel}
)


@pytest.mark.parametrize(("name", "arch"), OWN)
def test_what_is_stated_holds_of_the_kernels_as_they_are(name: str, arch: str) -> None:
    """If this fails after a rebuild: run the kernel's campaign and state it anew, or drop it."""
    (kernel,) = (k for k in manifest.kernels() if (k.name, k.arch) == (name, arch))
    built = KernelCode(kernel.read_code_object(), kernel.symbol)
    found = Arguments(ARGUMENTS, name, built)
    assert not found.stale, "\n".join(found.stale)
    assert not found.without_mutant(mutants(built, has_semaphores=True))
