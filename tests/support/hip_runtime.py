"""Binds hip-python to the virtual device and builds small code objects."""

from __future__ import annotations

import ctypes
import importlib
import os
import struct
from typing import Any

from amdattn.device import virtual_library
from tests.support.image_builder import Image, descriptor, kernel_metadata

# gfx942 code, as LLVM's assembler encodes it. Kernarg: s[0:1] -> {u32* out; u32 value;}.
ENDPGM = "000081bf"
LOAD_ARGS = "000106c000000000800102c008000000820002247fc08cbf"
CODE = {
    # s_endpgm
    "nothing": ENDPGM,
    # out[lane] = value
    "fill": LOAD_ARGS + "0602047e008070dc01020400" + ENDPGM,
    # out[lane] += value
    "add": LOAD_ARGS + "008050dc01000402700f8cbf06040468008070dc01020400" + ENDPGM,
    # value times around a loop of three instructions
    "spin": "800102c0080000007fc08cbf06818680068007bffdff85bf" + ENDPGM,
    # until the word at `out` is not 0
    "hold": LOAD_ARGS + "8002047e008051de02000403700f8cbf03050e7e078006bffaff85bf" + ENDPGM,
    # v6 = 0; v_mfma_f32_4x4x4_16b_f16; ds_read_b32 v7, v6; s_waitcnt
    "mfma_ds": "80020c7e0000cad3040d020400006cd8060000077fc08cbf" + ENDPGM,
    # m0 = 0; global_load_lds_dword of out[lane]; v2 = value
    "load_to_lds": LOAD_ARGS + "8000fcbe0080a8dc010004000602047e" + ENDPGM,
    # out[64 workgroup + lane of the wave] = v0, the work-item's id
    "ids": "000106c00000000001008cd2c100010001008dd2c10202000286038e03020268820202247fc08cbf"
    "008070dc01000400" + ENDPGM,
    # s_branch to itself
    "forever": "ffff82bf",
    # no instruction has this encoding
    "illegal": "ffffffff",
}
ARGS = [
    {".name": "out", ".offset": 0, ".size": 8, ".value_kind": "global_buffer"},
    {".name": "value", ".offset": 8, ".size": 4, ".value_kind": "by_value"},
]


def pack(value: Any) -> bytes:
    """Encode as MessagePack what the metadata of kernels consists of."""
    if isinstance(value, dict):
        return struct.pack(">BH", 0xDE, len(value)) + b"".join(
            pack(k) + pack(v) for k, v in value.items()
        )
    if isinstance(value, list):
        return struct.pack(">BH", 0xDC, len(value)) + b"".join(map(pack, value))
    if isinstance(value, str):
        return struct.pack(">BH", 0xDA, len(value.encode())) + value.encode()
    return struct.pack(">BI", 0xCE, value)


def code_object(code: str = "nothing", **metadata: Any) -> bytes:
    """Return an image whose kernel `k` consists of CODE[code]."""
    metadata = {"args": ARGS, "kernarg_segment_size": 16, "group_segment_fixed_size": 0} | metadata
    note = {
        "amdhsa.version": [1, 2],
        "amdhsa.target": "amdgcn-amd-amdhsa--gfx942",
        "amdhsa.kernels": [kernel_metadata(**metadata)],
    }
    two_user_sgprs_and_group_id, kernarg_pointer = 0x84, 8
    image = Image(
        note=pack(note),
        descriptor=descriptor(
            rsrc1=0x00AF0000,
            rsrc2=two_user_sgprs_and_group_id,
            properties=kernarg_pointer,
            kernarg=metadata["kernarg_segment_size"],
            lds=metadata["group_segment_fixed_size"],
            scratch=metadata.get("private_segment_fixed_size", 0),
        ),
        text=bytes.fromhex(CODE[code]) + bytes.fromhex("0000 80bf" * 64),
    )
    image.symbol("table", 0x3000, 64)
    return bytes(image.build())


def bind(path: str) -> Any:
    """Make hip-python use the library at `path`; return its `hip` module."""
    try:
        paths: Any = importlib.import_module("rocm.bindings.util.paths")
    except ImportError:  # hip-python before 10
        chip: Any = importlib.import_module("hip.chip")
        chip.DLL = os.fsencode(path)
        return importlib.import_module("hip.hip")
    original = paths.get_library_path

    def pick(shortname: str, *args: Any, **kwargs: Any) -> bytes:
        if shortname == "amdhip64":
            return os.fsencode(path)
        return original(shortname, *args, **kwargs)  # type: ignore[no-any-return]

    paths.get_library_path = pick
    return importlib.import_module("rocm.bindings.hip")


class Gate:
    """A kernel on a stream that does not end before `open`, however busy the machine is."""

    def __init__(self, hip: Runtime, stream: Any = None) -> None:
        self._hip, self._word = hip, hip.hipHostMalloc(4096, 0)
        hip.gates.append(self)  # a test that fails leaves it shut
        self._flag = ctypes.c_uint32.from_address(int(self._word))
        self._flag.value = 0
        _, hold = hip.kernel("hold")
        hip.launch(hold, self._word, stream=stream)

    def open(self) -> None:
        self._flag.value = 1

    def close(self) -> None:
        """Open it, and give the memory back, which waits for the kernel."""
        self.open()
        self._hip.hipHostFree(self._word)
        self._hip.gates.remove(self)


class Runtime:
    """The bound `hip` module with helpers around it."""

    def __init__(self, path: str, device: str = "") -> None:
        """`device`: the virtual device's library where `path` is AMD's runtime on it."""
        self.path, self.device_path = path, device
        self.is_amd = bool(device)
        if device:
            virtual_library.load_hsa(device)
        self.hip = bind(path)
        self.lib = ctypes.CDLL(path)
        self.device = ctypes.CDLL(device or path)
        self.device.amdattn_vdev_last_report.restype = ctypes.c_char_p
        self.device.amdattn_vdev_counter.restype = ctypes.c_uint64
        self.lib.hipGetErrorName.restype = ctypes.c_char_p
        self.lib.hipGetErrorString.restype = ctypes.c_char_p
        self.errors = self.hip.hipError_t
        self.gates: list[Gate] = []

    def __getattr__(self, name: str) -> Any:
        """Return a call that raises on an error and else returns the result proper."""
        function = getattr(self.hip, name)

        def call(*args: Any) -> Any:
            error, *results = function(*args)
            if error != self.errors.hipSuccess:
                raise HipError(error)
            return results[0] if len(results) == 1 else tuple(results)

        return call if name.startswith("hip") and name[3].isupper() else function

    def filled(self, call: str, struct: str, *args: Any) -> Any:
        """Call a function that fills a structure: returned since hip-python 10, passed before."""
        try:
            return getattr(self, call)(*args)
        except TypeError:
            result = getattr(self.hip, struct)()
            getattr(self, call)(result, *args)
            return result

    def properties(self, device: int = 0) -> Any:
        return self.filled("hipGetDeviceProperties", "hipDeviceProp_t", device)

    def pointer_attributes(self, pointer: int) -> Any:
        return self.filled("hipPointerGetAttributes", "hipPointerAttribute_t", pointer)

    @property
    def report(self) -> str:
        return str(self.device.amdattn_vdev_last_report().decode())

    def says(self, text: str) -> bool:
        """Whether the report of what was refused has a text; AMD's runtime has no reports."""
        return self.is_amd or text in self.report

    def counter(self, name: str) -> int:
        return int(self.device.amdattn_vdev_counter(name.encode()))

    def set_option(self, key: str, value: object) -> bool:
        return bool(self.device.amdattn_vdev_set_option(key.encode(), str(value).encode()))

    def kernel(self, code: str = "nothing", **metadata: Any) -> Any:
        """Load a code object and return (module, function)."""
        module = self.hipModuleLoadData(code_object(code, **metadata))
        return module, self.hipModuleGetFunction(module, b"k")

    def launch(
        self, function: Any, out: Any = 0, value: int = 0, lanes: int = 64, stream: Any = None
    ) -> None:
        extra = struct.pack("<QI4x", int(out), value)
        buffer = ctypes.create_string_buffer(extra, len(extra))
        size = ctypes.c_size_t(len(extra))
        config = (ctypes.c_void_p * 5)(1, ctypes.addressof(buffer), 2, ctypes.addressof(size), 3)
        self.hipModuleLaunchKernel(
            function, 1, 1, 1, lanes, 1, 1, 0, stream, None, ctypes.addressof(config)
        )


class HipError(Exception):
    def __init__(self, code: Any) -> None:
        super().__init__(code.name)
        self.code = code.name
