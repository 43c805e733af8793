"""The element types that arrays may have here: name, size and DLPack code, one row per type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class DType:
    """An element type.

    Attributes
    ----------
    name : str
        The name in numpy or ml_dtypes.
    short : str
        The name in kernel names and the manifest.
    itemsize : int
        Bytes per element.
    dlpack : tuple of int
        The DLPack (code, bits) pair.
    """

    name: str
    short: str
    itemsize: int
    dlpack: tuple[int, int]

    @property
    def bits(self) -> int:
        """Bits per element."""
        return self.dlpack[1]

    def numpy(self) -> np.dtype[Any]:
        """The numpy dtype; types that numpy lacks come from ml_dtypes."""
        import numpy as np  # before ml_dtypes, whose own import of it loses a Ctrl-C

        if self.name.startswith(("bfloat", "float8_", "float6_", "float4_")):
            import ml_dtypes

            found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, self.name))
            return found
        return np.dtype(self.name)


BFLOAT16 = DType("bfloat16", "bf16", 2, (4, 16))
FLOAT16 = DType("float16", "fp16", 2, (2, 16))
FLOAT32 = DType("float32", "fp32", 4, (2, 32))

_ALL = (
    BFLOAT16,
    FLOAT16,
    FLOAT32,
    DType("float64", "fp64", 8, (2, 64)),
    DType("float8_e4m3fn", "e4m3fn", 1, (10, 8)),
    DType("float8_e4m3fnuz", "e4m3fnuz", 1, (11, 8)),
    DType("float8_e5m2", "e5m2", 1, (12, 8)),
    DType("float8_e5m2fnuz", "e5m2fnuz", 1, (13, 8)),
    DType("int8", "i8", 1, (0, 8)),
    DType("int16", "i16", 2, (0, 16)),
    DType("int32", "i32", 4, (0, 32)),
    DType("int64", "i64", 8, (0, 64)),
    DType("uint8", "u8", 1, (1, 8)),
    DType("uint16", "u16", 2, (1, 16)),
    DType("uint32", "u32", 4, (1, 32)),
    DType("uint64", "u64", 8, (1, 64)),
)
# Types smaller than a byte. Products accept them packed, as uint8; ml_dtypes uses a byte for each.
PACKED = (
    DType("float6_e2m3fn", "e2m3fn", 1, (15, 6)),
    DType("float6_e3m2fn", "e3m2fn", 1, (16, 6)),
    DType("float4_e2m1fn", "e2m1fn", 1, (17, 4)),
)
_BY_NAME = {name: dtype for dtype in (*_ALL, *PACKED) for name in (dtype.name, dtype.short)}
_BY_DLPACK = {dtype.dlpack: dtype for dtype in _ALL}


# Names of DLPack's codes (DLDataTypeCode), for messages.
_DLPACK_CODES = (
    *("int", "uint", "float", "opaque handle", "bfloat", "complex", "bool"),
    *("float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz"),
    *("float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float6_e2m3fn", "float6_e3m2fn"),
    "float4_e2m1fn",
)


def as_dtype(value: object, what: str = "dtype") -> DType:
    """Resolve a name ("bfloat16" or "bf16"), a DType, or any object with numpy's `dtype.name`.

    Raises
    ------
    ValueError
        It is none of the types above, or has the other byte order; the message calls it `what`.
    """
    if isinstance(value, DType):
        return value
    name = value if isinstance(value, str) else getattr(value, "name", None)
    if name is None:  # a scalar type such as np.float32 or ml_dtypes.bfloat16
        name = getattr(value, "__name__", None)
    if name is None and type(value).__module__ == "torch":  # torch.float32
        name = str(value).removeprefix("torch.")
    if name not in _BY_NAME or not getattr(value, "isnative", True):
        raise ValueError(f"{what}={value!r} is not known (have {', '.join(d.name for d in _ALL)})")
    return _BY_NAME[name]


def from_dlpack_code(code: int, bits: int, lanes: int) -> DType:
    """Resolve a DLPack element type; raises ValueError for one that has no row here."""
    dtype = _BY_DLPACK.get((code, bits))
    if dtype is None or lanes != 1:
        kind = f"{_DLPACK_CODES[code]} " if code < len(_DLPACK_CODES) else ""
        raise ValueError(
            f"DLPack element type {kind}(code={code}, bits={bits}, lanes={lanes}) is not taken "
            f"(have {', '.join(d.name for d in _ALL)})"
        )
    return dtype
