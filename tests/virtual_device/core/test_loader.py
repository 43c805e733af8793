"""The loader on images built field by field: metadata, descriptors, relocations, refusals."""

from __future__ import annotations

import ctypes
import mmap
import random
import struct
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.image_builder import (
    ABSOLUTE,
    DATA_AT,
    DATA_BYTES,
    DESCRIPTOR_AT,
    OBJECT,
    PAGE,
    TEXT_AT,
    UNDEFINED,
    WEAK,
    Image,
    bundle,
    descriptor,
    kernel_metadata,
)
from tests.support.loader_library import LIBRARY, Loaded

msgpack = pytest.importorskip("msgpack")

LATE_DATA = DATA_AT + DATA_BYTES + 0x100  # in the zero-filled part


def note(*kernels: dict[str, Any], **changes: Any) -> bytes:
    top = {"amdhsa.version": [1, 1], "amdhsa.kernels": list(kernels or [kernel_metadata()])}
    return bytes(msgpack.packb(top | {f"amdhsa.{k}": v for k, v in changes.items()}))


def image(**fields: Any) -> Image:
    return Image(**({"note": note()} | fields))


def error_of(data: bytes, arch: str = "gfx942") -> str:
    with Loaded(data, arch) as loaded:
        assert loaded.error is not None, "the image was accepted"
        return loaded.error


def test_segments_lie_at_their_distances() -> None:
    built = image(text=bytes(random.Random(1).randbytes(1024)))
    with Loaded(built.build()) as loaded:
        assert loaded.error is None
        base = loaded.base
        assert base % PAGE == 0
        assert loaded.read(base + TEXT_AT, 1024) == built.text
        assert loaded.read(base + DESCRIPTOR_AT, 64) == built.descriptor
        assert loaded.read(base + DATA_AT, DATA_BYTES) == built.data
        zeros = built.data_memory - DATA_BYTES
        assert loaded.read(base + DATA_AT + DATA_BYTES, zeros) == bytes(zeros)
        assert loaded.info["text_address"] == base + TEXT_AT
        assert loaded.info["text_bytes"] == 1024


def test_huge_zero_filled_variable_stays_lazy() -> None:
    built = image(data_memory=40 << 30)
    built.symbol("array", DATA_AT + PAGE, 39 << 30)
    with Loaded(built.build()) as loaded:
        variable = loaded.info["globals"][0]
        assert variable == {
            "name": "array",
            "address": loaded.base + DATA_AT + PAGE,
            "size": 39 << 30,
        }
        assert loaded.read(variable["address"] + (30 << 30), 64) == bytes(64)


def test_descriptor_fields() -> None:
    rng = random.Random(2)
    for _ in range(300):
        rsrc1, rsrc2, rsrc3 = (rng.getrandbits(32) for _ in range(3))
        properties, preload = rng.getrandbits(16), rng.getrandbits(16)
        words = {"rsrc1": rsrc1, "rsrc2": rsrc2, "rsrc3": rsrc3}
        raw = descriptor(properties=properties, preload=preload, **words)
        with Loaded(image(descriptor=raw).build()) as loaded:
            kernel = loaded.kernel("k")
        total = ((rsrc1 & 0x3F) + 1) * 8
        arch_vgprs = min(((rsrc3 & 0x3F) + 1) * 4, total)
        expected = {
            "num_vgprs": arch_vgprs,
            "num_agprs": total - arch_vgprs,
            "tg_split": bool(rsrc3 >> 16 & 1),
            "float_mode": rsrc1 >> 12 & 0xFF,
            "dx10_clamp": bool(rsrc1 >> 21 & 1),
            "ieee_mode": bool(rsrc1 >> 23 & 1),
            "fp16_overflow": bool(rsrc1 >> 26 & 1),
            "enable_private_segment": bool(rsrc2 & 1),
            "user_sgpr_count": rsrc2 >> 1 & 0x1F,
            "trap_handler": bool(rsrc2 >> 6 & 1),
            "workgroup_id_x": bool(rsrc2 >> 7 & 1),
            "workgroup_id_y": bool(rsrc2 >> 8 & 1),
            "workgroup_id_z": bool(rsrc2 >> 9 & 1),
            "workgroup_info": bool(rsrc2 >> 10 & 1),
            "workitem_id_dims": rsrc2 >> 11 & 3,
            "exception_mask": rsrc2 >> 24 & 0x7F,
            "user_private_segment_buffer": bool(properties & 1),
            "user_dispatch_ptr": bool(properties >> 1 & 1),
            "user_queue_ptr": bool(properties >> 2 & 1),
            "user_kernarg_ptr": bool(properties >> 3 & 1),
            "user_dispatch_id": bool(properties >> 4 & 1),
            "user_flat_scratch": bool(properties >> 5 & 1),
            "user_private_segment_size": bool(properties >> 6 & 1),
            "wavefront_size": 32 if properties >> 10 & 1 else 64,
            "dynamic_stack": bool(properties >> 11 & 1),
            "kernarg_preload_dwords": preload & 0x7F,
            "kernarg_preload_offset": preload >> 7,
        }
        assert {k: kernel[k] for k in expected} == expected
        assert kernel["entry_address"] == loaded.base + TEXT_AT
        assert kernel["descriptor_address"] == loaded.base + DESCRIPTOR_AT


def test_what_a_launch_may_refuse_is_only_recorded() -> None:
    metadata = kernel_metadata(group_segment_fixed_size=160 * 1024, wavefront_size=32)
    raw = descriptor(lds=160 * 1024)
    with Loaded(image(note=note(metadata), descriptor=raw).build()) as loaded:
        assert loaded.kernel("k")["lds_bytes"] == 160 * 1024
        assert loaded.kernel("k")["wavefront_size"] == 32


def repack(value: Any, rng: random.Random) -> bytes:
    """Encode like msgpack.packb, choosing among the valid widths at random."""
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        forms = [bytes([value])] if 0 <= value < 128 else []
        for i, (unsigned, signed) in enumerate(zip("BHIQ", "bhiq", strict=True)):
            for tag, code in ((0xCC + i, unsigned), (0xD0 + i, signed)):
                try:
                    forms.append(bytes([tag]) + struct.pack(">" + code, value))
                except struct.error:
                    continue
        return rng.choice(forms)

    def head(size: int, fix: int, fix_limit: int, tags: str) -> bytes:
        forms = [bytes([fix | size])] if size < fix_limit else []
        for tag, code in zip(bytes.fromhex(tags), "BHI"[-len(tags) // 2 :], strict=True):
            if size < 1 << 8 * struct.calcsize(code):
                forms.append(bytes([tag]) + struct.pack(">" + code, size))
        return rng.choice(forms)

    if isinstance(value, str):
        return head(len(value.encode()), 0xA0, 32, "d9dadb") + value.encode()
    if isinstance(value, list):
        return head(len(value), 0x90, 16, "dcdd") + b"".join(repack(v, rng) for v in value)
    if isinstance(value, dict):
        items = b"".join(repack(k, rng) + repack(v, rng) for k, v in value.items())
        return head(len(value), 0x80, 16, "dedf") + items
    return bytes(msgpack.packb(value, use_bin_type=True))


def test_every_encoding_of_metadata_reads_the_same() -> None:
    rng = random.Random(3)
    kinds = ["by_value", "global_buffer", "hidden_block_count_x", "hidden_none"]
    for _ in range(200):
        args = [
            {
                ".name": "n" * rng.randrange(40),
                ".offset": rng.randrange(60000),
                ".size": rng.randrange(300),
                ".value_kind": rng.choice(kinds),
                ".unknown": rng.choice([None, 1.5, b"\1\2", [1, [2, {"x": -3}]], -(1 << 40), "é"]),
                ".extension": msgpack.ExtType(5, bytes(rng.choice([1, 2, 3, 4, 8, 16, 300]))),
            }
            for _ in range(rng.randrange(1, 40))
        ]
        metadata = kernel_metadata(args=args, kernarg_segment_size=1 << 17)
        metadata[".uses_dynamic_stack"] = rng.random() < 0.5
        top = {"amdhsa.other": {"a": [{}] * 20}, "amdhsa.version": [1, 2]}
        data = repack(top | {"amdhsa.kernels": [metadata]}, rng)
        assert msgpack.unpackb(data)["amdhsa.kernels"] == [metadata]
        with Loaded(image(note=data).build()) as loaded:
            assert loaded.error is None
            kernel = loaded.kernel("k")
        assert kernel["dynamic_stack"] == metadata[".uses_dynamic_stack"]
        assert kernel["kernarg_bytes"] == 1 << 17
        got = [tuple(a[k] for k in ("name", "offset", "size", "kind")) for a in kernel["args"]]
        fields = (".name", ".offset", ".size", ".value_kind")
        assert got == [tuple(a[k] for k in fields) for a in args]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "cut off"),
        (b"\xc1", "0xc1 is no MessagePack type"),
        (b"\x93", "expected a map"),
        (b"\xdf\xff\xff\xff\xff", "cut off"),
        (b"\x81\xa1x" + b"\x91" * 100000, "cut off"),  # nesting costs no stack
        (b"\x81\xa1x\xdd\xff\xff\xff\xff" + b"\xdd\xff\xff\xff\xff" * 1000, "cut off"),
        (b"\x81\xdb\xff\xff\xff\xff", "cut off"),
        (note(version=[2, 0]), "amdhsa.version is 2.x, expected 1.x"),
        (note(version=[]), "amdhsa.version is empty"),
        (note(kernel_metadata(wavefront_size="64")), "expected a non-negative integer"),
        (note(kernel_metadata(sgpr_count=-1)), "expected a non-negative integer"),
        (note(kernel_metadata(sgpr_count=1 << 32)), "the number exceeds 32 bits"),
        (note(kernel_metadata(args=[{".value_kind": "hidden_new"}])), ".value_kind 'hidden_new'"),
        (note(kernel_metadata(kernarg_segment_size=7)), "leaves the kernarg segment of 0x7"),
        (note(kernel_metadata(symbol="other.kd")), "no descriptor symbol 'other.kd'"),
        (note(kernel_metadata(name="\n\x7f", symbol="x")), "kernel '\\x0a\\x7f'"),
    ],
)
def test_bad_metadata(data: bytes, message: str) -> None:
    assert message in error_of(image(note=data).build())


# R_AMDGPU_: (number, bytes, value from S, A, P, B)
RELOCATIONS: dict[str, tuple[int, int, Callable[[int, int, int, int], int]]] = {
    "ABS32_LO": (1, 4, lambda s, a, p, b: s + a),
    "ABS32_HI": (2, 4, lambda s, a, p, b: s + a >> 32),
    "ABS64": (3, 8, lambda s, a, p, b: s + a),
    "REL32": (4, 4, lambda s, a, p, b: s + a - p),
    "REL64": (5, 8, lambda s, a, p, b: s + a - p),
    "REL32_LO": (10, 4, lambda s, a, p, b: s + a - p),
    "REL32_HI": (11, 4, lambda s, a, p, b: s + a - p >> 32),
    "RELATIVE64": (13, 8, lambda s, a, p, b: b + a),
}


@pytest.mark.parametrize("name", RELOCATIONS)
@pytest.mark.parametrize("addend", [0, 12, -8])
@pytest.mark.parametrize("place", [DATA_AT + 20, LATE_DATA])
def test_relocation(name: str, addend: int, place: int) -> None:
    number, size, value = RELOCATIONS[name]
    built = image()
    index = built.symbol("target", DATA_AT + 100, 4)
    built.relocations = [(place, number, index, addend), (DATA_AT, 0, 0, 0)]
    with Loaded(built.build()) as loaded:
        base = loaded.base
        result = value(base + DATA_AT + 100, addend, base + place, base) % (1 << 8 * size)
        assert loaded.read(base + place, size) == result.to_bytes(size, "little")
        assert loaded.read(base + DATA_AT, 20) == bytes(range(20))
        untouched = bytes(range(20 + size, 40 + size)) if place == DATA_AT + 20 else bytes(20)
        assert loaded.read(base + place + size, 20) == untouched


def test_relocations_that_the_linker_has_applied() -> None:
    """What --emit-relocs leaves is not loaded, and not applied again."""
    built = image()
    built.relocation_flags = 0
    built.relocations = [(DATA_AT + 20, 3, built.symbol("target", DATA_AT + 100, 4), 0)]
    with Loaded(built.build()) as loaded:
        assert loaded.read(loaded.base + DATA_AT, 40) == bytes(range(40))


def test_relocation_against_absolute_and_weak_symbols() -> None:
    built = image()
    absolute = built.symbol("absolute", 0x1234, section=ABSOLUTE)
    weak = built.symbol("weak", 0, binding=WEAK, section=UNDEFINED)
    built.relocations = [(DATA_AT, 6, absolute, 1), (DATA_AT + 8, 3, weak, 3)]
    with Loaded(built.build()) as loaded:
        assert loaded.read(loaded.base + DATA_AT, 4) == (0x1235).to_bytes(4, "little")
        assert loaded.read(loaded.base + DATA_AT + 8, 8) == (3).to_bytes(8, "little")


@pytest.mark.parametrize(
    ("place", "number", "symbol", "message"),
    [
        (DATA_AT, 3, "missing", "needs the undefined symbol 'missing'"),
        (DATA_AT, 6, "target", "does not hold the 64-bit value"),
        (DATA_AT, 7, "target", "type 7 at 0x3000 is not supported"),
        (DATA_AT, 99, "target", "type 99 at 0x3000 is not supported"),
        (DATA_AT, 3, None, "names a symbol that does not exist"),
        (DATA_AT + 3 * PAGE - 4, 3, "target", "outside the segments"),
        ((1 << 64) - 8, 3, "target", "outside the segments"),
    ],
)
def test_bad_relocation(place: int, number: int, symbol: str | None, message: str) -> None:
    built = image()
    indices = {"target": built.symbol("target", DATA_AT, 4), None: 1 << 20}
    indices["missing"] = built.symbol("missing", 0, section=UNDEFINED)
    built.relocations = [(place, number, indices[symbol], 0)]
    assert message in error_of(built.build())


def test_globals_are_exported_variables() -> None:
    built = image()
    built.symbol("counter", DATA_AT + 8, 4)
    built.symbol("weak", DATA_AT + 16, 8, binding=WEAK)
    built.symbol("local", DATA_AT + 24, 8, binding=0)
    built.symbol("undefined", 0, 8, section=UNDEFINED)
    built.symbol("function", TEXT_AT, 8, kind=2)
    with Loaded(built.build()) as loaded:
        found = {g["name"]: (g["address"] - loaded.base, g["size"]) for g in loaded.info["globals"]}
    assert found == {"counter": (DATA_AT + 8, 4), "weak": (DATA_AT + 16, 8)}
    built.symbol("beyond", DATA_AT + 3 * PAGE - 4, 8, kind=OBJECT)
    assert "variable 'beyond' lies outside the segments" in error_of(built.build())


def test_describe() -> None:
    built = image()
    built.symbol("helper", TEXT_AT + 512, kind=2)
    with Loaded(built.build()) as loaded:
        base = loaded.base
        assert loaded.describe(base + TEXT_AT) == "k+0x0"
        assert loaded.describe(base + TEXT_AT + 508) == "k+0x1fc"
        assert loaded.describe(base + TEXT_AT + 516) == "helper+0x4"
        assert loaded.describe(base + 16) == "code object+0x10"
        assert loaded.describe(0x1234) == "0x1234"


def test_functions_outside_the_code_are_no_functions() -> None:
    built = image()
    for name, value in (("low", PAGE), ("odd", TEXT_AT + 18), ("high", 1 << 62)):
        built.symbol(name, value, kind=2)
    with Loaded(built.build()) as loaded:
        assert loaded.describe(loaded.base + PAGE + 4) == "code object+0x1004"
        assert loaded.describe(loaded.base + TEXT_AT + 20) == "k+0x14"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"machine": 62}, "for machine 62, not for AMDGPU (224)"),
        ({"os_abi": 0}, "OS ABI 0, not AMDGPU HSA (64)"),
        ({"abi_version": 1}, "ABI version 1; 2, 3 and 4"),
        ({"abi_version": 5}, "ABI version 5; 2, 3 and 4"),
        ({"elf_type": 1}, "not linked (type 1"),
        ({"string_table": ".names"}, "no section .strtab: it is stripped, and AMD's HIP runtime"),
        ({"flags": 0x54F}, "for gfx950 (e_flags 0x54f), this device is gfx942:sramecc+:xnack-"),
        ({"flags": 0x53F}, "for another processor (e_flags 0x53f)"),
        ({"flags": 0x74C}, "e_flags 0x74c"),
        ({"flags": 0x94C}, "e_flags 0x94c"),
        ({"text_align": 1 << 16}, "alignment of 0x10000; at most 4096"),
        ({"data_memory": 255}, "a segment at 0x3000 of 0xff bytes is malformed"),
        ({"data_memory": 1 << 45}, "no device memory"),
        ({"data_memory": (1 << 64) - 1}, "malformed"),
        ({"descriptor": descriptor(entry=0)}, "entry point is misaligned or outside"),
        ({"descriptor": descriptor(entry=PAGE + 4)}, "entry point is misaligned or outside"),
        ({"descriptor": descriptor(entry=PAGE + 1024)}, "entry point is misaligned or outside"),
        ({"descriptor": descriptor(entry=PAGE + 768, preload=1)}, "entry point is misaligned"),
    ],
)
def test_refused_images(fields: dict[str, Any], message: str) -> None:
    assert message in error_of(image(**fields).build())


@pytest.mark.parametrize("abi_version", [2, 3, 4])
@pytest.mark.parametrize(("arch", "mach"), [("gfx942", 0x4C), ("gfx950", 0x4F)])
def test_accepted_targets(abi_version: int, arch: str, mach: int) -> None:
    for features in (0x000, 0x100, 0x200, 0x500, 0x600, 0xC00, 0xE00):
        for processor in (mach, 0x5F):
            data = image(flags=features | processor, abi_version=abi_version).build()
            with Loaded(data, arch) as loaded:
                assert loaded.error is None and loaded.info["arch"] == arch


def test_every_truncation_is_refused() -> None:
    data = image().build()
    for size in [*range(0, 200), *range(200, len(data), 97), len(data) - 1]:
        assert error_of(data[:size])


def mark(value: int) -> bytes:
    return image(data=bytes([value]) * DATA_BYTES).build()


NAMES = {
    "host": "host-x86_64-unknown-linux-gnu-",
    "exact": "hipv4-amdgcn-amd-amdhsa--gfx942",
    "spelled": "hip-amdgcn-amd-amdhsa-unknown-gfx942",
    "features": "hipv4-amdgcn-amd-amdhsa--gfx942:sramecc+:xnack-",
    "xnack": "hipv4-amdgcn-amd-amdhsa--gfx942:xnack+",
    "generic": "hipv4-amdgcn-amd-amdhsa--gfx9-4-generic",
    "other": "hipv4-amdgcn-amd-amdhsa--gfx90a",
    "longer": "hipv4-amdgcn-amd-amdhsa--gfx9420",
}


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (["host", "exact"], "exact"),
        (["spelled"], "spelled"),
        (["generic", "exact"], "exact"),
        (["exact", "generic"], "exact"),
        (["generic", "other"], "generic"),
        (["xnack", "features"], "features"),
        (["exact", "features", "xnack"], "features"),
        (["other", "xnack", "longer", "host"], None),
        ([], None),
    ],
)
def test_bundle_entry_is_chosen(names: list[str], chosen: str | None) -> None:
    data = bundle([(NAMES[name], mark(i)) for i, name in enumerate(names)])
    assert LIBRARY.vdev_test_image_bytes(data + b"tail") == len(data)
    if chosen is None:
        message = error_of(data)
        assert "no image for gfx942:sramecc+:xnack-" in message
        assert all(NAMES[name] in message for name in names)
        return
    with Loaded(data) as loaded:
        value = loaded.read(loaded.base + DATA_AT, 1)[0]
        assert names[value] == chosen


def test_bundles_that_are_refused() -> None:
    whole = bundle([(NAMES["exact"], mark(0))])
    for size in range(0, 200):
        assert error_of(whole[:size])
    assert "leaves the offload bundle" in error_of(whole[:-1])
    assert "compressed offload bundles (CCOB) are not supported" in error_of(b"CCOB" + bytes(60))
    assert "no ELF image" in error_of(b"BC\xc0\xde" + bytes(100))


def test_image_length_comes_from_its_headers() -> None:
    data = mark(1)
    assert LIBRARY.vdev_test_image_bytes(data + bytes(1000)) == len(data)
    # Of anything else as much as it takes to say what it is.
    assert 4 <= LIBRARY.vdev_test_image_bytes(b"CCOB" + bytes(64)) <= 24
    assert 0 < LIBRARY.vdev_test_image_bytes(b"__CLANG" + bytes(64)) <= 24


class Guarded:
    """Bytes that end where the address space does: what lies behind them is not mapped."""

    def __init__(self, data: bytes) -> None:
        self._map = mmap.mmap(-1, (len(data) + 2 * PAGE - 1) // PAGE * PAGE)
        self._map[len(self._map) - PAGE - len(data) : len(self._map) - PAGE] = data
        first = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self.address = first + len(self._map) - PAGE - len(data)
        protect = ctypes.CDLL(None).mprotect
        protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        assert protect(first + len(self._map) - PAGE, PAGE, 0) == 0


def with_u64(data: bytes, at: int, value: int) -> bytes:
    return data[:at] + value.to_bytes(8, "little") + data[at + 8 :]


PHOFF, SHOFF = 32, 40  # in the ELF header


@pytest.mark.parametrize("at", [PHOFF, SHOFF])
@pytest.mark.parametrize("value", [1 << 20, 1 << 32, (1 << 64) - 1, (1 << 64) - 64])
def test_headers_that_point_outside_are_not_followed(at: int, value: int) -> None:
    hostile = with_u64(mark(1), at, value)
    assert LIBRARY.vdev_test_image_bytes(Guarded(hostile).address) <= 1 << 32


@pytest.mark.parametrize("size", [0, 1, 4, 20, 24, 31, 32, 63, 64, 100, 200])
def test_images_cut_off_at_the_end_of_memory(size: int) -> None:
    for whole in (mark(1), bundle([(NAMES["exact"], mark(1))])):
        LIBRARY.vdev_test_image_bytes(Guarded(whole[:size]).address)


@pytest.mark.parametrize(
    "fields", [(1 << 63, 1 << 63, 30), (0, 1 << 40, 30), (64, 64, 1 << 63), ((1 << 64) - 1, 2, 0)]
)
def test_bundles_with_absurd_entries_have_a_bounded_length(fields: tuple[int, int, int]) -> None:
    hostile = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<4Q", (1 << 64) - 1, *fields)
    assert LIBRARY.vdev_test_image_bytes(Guarded(hostile).address) <= 1 << 33


def mutate(data: bytes, rng: random.Random) -> bytes:
    out = bytearray(data)
    interesting = (0, 1, 0x7F, 0x80, 0xFF)
    for _ in range(rng.randrange(1, 6)):
        # Headers and tables are where bytes matter; most of an image is padding.
        at = rng.choice([rng.randrange(300), rng.randrange(len(out)), -rng.randrange(1, 1200)])
        kind = rng.randrange(3)
        if kind == 0:
            out[at] = rng.choice(interesting)
        elif kind == 1:
            out[at] ^= 1 << rng.randrange(8)
        else:
            at = min(at % len(out) & ~7, len(out) - 8)
            word = rng.choice([0, 1, 1 << 31, (1 << 32) - 1, 1 << 63, (1 << 64) - 1, len(out)])
            out[at : at + 8] = word.to_bytes(8, "little")
    return bytes(out[: rng.randrange(len(out))] if rng.random() < 0.05 else out)


def test_mutated_images_load_or_say_why_not() -> None:
    rng = random.Random(4)
    built = image(note=note(kernel_metadata(), kernel_metadata(name="k2")))
    index = built.symbol("variable", DATA_AT, 16)
    built.relocations = [(DATA_AT + 8 * i, kind, index, 4) for i, kind in enumerate((3, 13, 5, 4))]
    plain = built.build()
    sources = [plain, plain, bundle([(NAMES["other"], mark(1)), (NAMES["exact"], plain)])]
    refused = 0
    for _ in range(4000):
        with Loaded(mutate(rng.choice(sources), rng)) as loaded:
            refused += loaded.error is not None
            assert loaded.error != ""
    assert 400 < refused < 3900
