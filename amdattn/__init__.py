"""amdattn: precompiled attention kernels for AMD Instinct, without torch and without a compiler.

Importing this package touches no GPU, no HIP library and no file beyond the package itself. The
device is bound at the first operation that needs one; see :func:`amdattn.use_device`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from amdattn.attention import (
        explain as explain,
        flash_attn_func as flash_attn_func,
        flash_attn_kvpacked_func as flash_attn_kvpacked_func,
        flash_attn_qkvpacked_func as flash_attn_qkvpacked_func,
        plan_attention as plan_attention,
        supports as supports,
    )
    from amdattn.attention_varlen import (
        flash_attn_varlen_func as flash_attn_varlen_func,
        flash_attn_varlen_kvpacked_func as flash_attn_varlen_kvpacked_func,
        flash_attn_varlen_qkvpacked_func as flash_attn_varlen_qkvpacked_func,
    )
    from amdattn.buffers import DeviceArray as DeviceArray, empty as empty
    from amdattn.device import DeviceProps as DeviceProps
    from amdattn.errors import (
        AmdattnError as AmdattnError,
        BindingError as BindingError,
        CheckError as CheckError,
        CorruptKernel as CorruptKernel,
        HipError as HipError,
        ManifestError as ManifestError,
        UnsupportedDeviceError as UnsupportedDeviceError,
        UnsupportedProblem as UnsupportedProblem,
    )
    from amdattn.execution import AttentionPlan as AttentionPlan
    from amdattn.gemm import (
        explain_gemm as explain_gemm,
        gemm_nt as gemm_nt,
        plan_gemm as plan_gemm,
        supports_gemm as supports_gemm,
    )
    from amdattn.gemm_execution import GemmPlan as GemmPlan
    from amdattn.interchange import asarray as asarray, from_dlpack as from_dlpack
    from amdattn.manifest import Member as Member, Support as Support, kernels as kernels
    from amdattn.memory import empty_cache as empty_cache
    from amdattn.runtime import (
        device_props as device_props,
        synchronize as synchronize,
        use_device as use_device,
    )

# Public name -> module that defines it; resolved on first use, so that importing stays cheap.
_HOME = {
    "AttentionPlan": "execution",
    "explain": "attention",
    "flash_attn_func": "attention",
    "flash_attn_kvpacked_func": "attention",
    "flash_attn_qkvpacked_func": "attention",
    "flash_attn_varlen_func": "attention_varlen",
    "flash_attn_varlen_kvpacked_func": "attention_varlen",
    "flash_attn_varlen_qkvpacked_func": "attention_varlen",
    "plan_attention": "attention",
    "supports": "attention",
    "GemmPlan": "gemm_execution",
    "explain_gemm": "gemm",
    "gemm_nt": "gemm",
    "plan_gemm": "gemm",
    "supports_gemm": "gemm",
    "DeviceArray": "buffers",
    "asarray": "interchange",
    "empty": "buffers",
    "from_dlpack": "interchange",
    "empty_cache": "memory",
    "DeviceProps": "device",
    "AmdattnError": "errors",
    "BindingError": "errors",
    "CheckError": "errors",
    "CorruptKernel": "errors",
    "HipError": "errors",
    "ManifestError": "errors",
    "UnsupportedDeviceError": "errors",
    "UnsupportedProblem": "errors",
    "Member": "manifest",
    "Support": "manifest",
    "kernels": "manifest",
    "device_props": "runtime",
    "synchronize": "runtime",
    "use_device": "runtime",
}
_SUBMODULES = ("testing", "virtual")

__all__ = [*_HOME, *_SUBMODULES, "__version__"]  # noqa: PLE0604 -- the names are the keys


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(f"amdattn.{_HOME[name]}"), name)
    elif name in _SUBMODULES:
        value = import_module(f"amdattn.{name}")
    else:
        raise AttributeError(f"module 'amdattn' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
