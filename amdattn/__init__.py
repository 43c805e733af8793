"""amdattn: precompiled attention kernels for AMD Instinct, without torch and without a compiler.

Importing this package touches no GPU, no HIP library and no file beyond the package itself. The
device is bound at the first operation that needs one; see :func:`amdattn.use_device`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from amdattn.arch.props import DeviceProps as DeviceProps
    from amdattn.arrays.buffers import DeviceArray as DeviceArray, empty as empty
    from amdattn.arrays.interchange import asarray as asarray, from_dlpack as from_dlpack
    from amdattn.arrays.memory import empty_cache as empty_cache
    from amdattn.device.manifest import kernels as kernels
    from amdattn.device.runtime import (
        device_props as device_props,
        synchronize as synchronize,
        use_device as use_device,
    )
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
    from amdattn.op.support import Support as Support
    from amdattn.ops.attention.dense import (
        explain as explain,
        flash_attn_func as flash_attn_func,
        flash_attn_kvpacked_func as flash_attn_kvpacked_func,
        flash_attn_qkvpacked_func as flash_attn_qkvpacked_func,
        plan_attention as plan_attention,
        supports as supports,
    )
    from amdattn.ops.attention.execution import AttentionPlan as AttentionPlan
    from amdattn.ops.attention.select import Member as Member
    from amdattn.ops.attention.varlen import (
        flash_attn_varlen_func as flash_attn_varlen_func,
        flash_attn_varlen_kvpacked_func as flash_attn_varlen_kvpacked_func,
        flash_attn_varlen_qkvpacked_func as flash_attn_varlen_qkvpacked_func,
    )
    from amdattn.ops.attention_backward.dense import flash_attn_backward as flash_attn_backward
    from amdattn.ops.attention_backward.execution import BackwardPlan as BackwardPlan
    from amdattn.ops.attention_backward.plans import (
        plan_attention_backward as plan_attention_backward,
    )
    from amdattn.ops.attention_backward.varlen import (
        flash_attn_varlen_backward as flash_attn_varlen_backward,
    )
    from amdattn.ops.cache_attention.cascade_plan import CascadePlan as CascadePlan
    from amdattn.ops.cache_attention.decode_plan import DecodePlan as DecodePlan
    from amdattn.ops.cache_attention.functions import (
        cascade_attention as cascade_attention,
        flash_attn_with_kvcache as flash_attn_with_kvcache,
    )
    from amdattn.ops.cache_attention.planned import (
        plan_cascade as plan_cascade,
        plan_decode as plan_decode,
        plan_prefill as plan_prefill,
        supports_decode as supports_decode,
    )
    from amdattn.ops.cache_attention.prefill_plan import PrefillPlan as PrefillPlan
    from amdattn.ops.embedding.embedding import (
        EmbeddingPlan as EmbeddingPlan,
        embedding as embedding,
        plan_embedding as plan_embedding,
    )
    from amdattn.ops.gated.gated import (
        GatedPlan as GatedPlan,
        gelu_and_mul as gelu_and_mul,
        plan_gated_activation as plan_gated_activation,
        silu_and_mul as silu_and_mul,
    )
    from amdattn.ops.gemm.execution import GemmPlan as GemmPlan
    from amdattn.ops.gemm.gemm import gemm as gemm, gemm_nt as gemm_nt, grouped_gemm as grouped_gemm
    from amdattn.ops.gemm.mx import quantize_mx as quantize_mx
    from amdattn.ops.gemm.plans import (
        explain_gemm as explain_gemm,
        plan_gemm as plan_gemm,
        supports_gemm as supports_gemm,
    )
    from amdattn.ops.layer_norm.layer_norm import (
        LayerNormPlan as LayerNormPlan,
        layer_norm as layer_norm,
        plan_layer_norm as plan_layer_norm,
    )
    from amdattn.ops.layer_norm_backward.execution import (
        layer_norm_backward as layer_norm_backward,
    )
    from amdattn.ops.merge.merge_state import (
        MergePlan as MergePlan,
        merge_state as merge_state,
        plan_merge_state as plan_merge_state,
    )
    from amdattn.ops.norm.rms_norm import (
        NormPlan as NormPlan,
        plan_rms_norm as plan_rms_norm,
        rms_norm as rms_norm,
    )
    from amdattn.ops.quantize.quantize_fp8 import (
        QuantizePlan as QuantizePlan,
        plan_quantize_fp8 as plan_quantize_fp8,
        quantize_fp8 as quantize_fp8,
    )
    from amdattn.ops.rotary.rotary import (
        RotaryPlan as RotaryPlan,
        apply_rotary_emb as apply_rotary_emb,
        plan_rotary as plan_rotary,
    )
    from amdattn.ops.rotary.tables import rotary_tables as rotary_tables
    from amdattn.ops.sample.sample import (
        SamplePlan as SamplePlan,
        argmax as argmax,
        plan_sample as plan_sample,
        sample as sample,
    )

# Public name -> module that defines it; resolved on first use, so that importing stays cheap.
_HOME = {
    "AttentionPlan": "ops.attention.execution",
    "explain": "ops.attention.dense",
    "flash_attn_func": "ops.attention.dense",
    "flash_attn_kvpacked_func": "ops.attention.dense",
    "flash_attn_qkvpacked_func": "ops.attention.dense",
    "flash_attn_varlen_func": "ops.attention.varlen",
    "flash_attn_varlen_kvpacked_func": "ops.attention.varlen",
    "flash_attn_varlen_qkvpacked_func": "ops.attention.varlen",
    "plan_attention": "ops.attention.dense",
    "supports": "ops.attention.dense",
    "BackwardPlan": "ops.attention_backward.execution",
    "flash_attn_backward": "ops.attention_backward.dense",
    "flash_attn_varlen_backward": "ops.attention_backward.varlen",
    "plan_attention_backward": "ops.attention_backward.plans",
    "CascadePlan": "ops.cache_attention.cascade_plan",
    "cascade_attention": "ops.cache_attention.functions",
    "plan_cascade": "ops.cache_attention.planned",
    "DecodePlan": "ops.cache_attention.decode_plan",
    "flash_attn_with_kvcache": "ops.cache_attention.functions",
    "plan_decode": "ops.cache_attention.planned",
    "supports_decode": "ops.cache_attention.planned",
    "EmbeddingPlan": "ops.embedding.embedding",
    "embedding": "ops.embedding.embedding",
    "plan_embedding": "ops.embedding.embedding",
    "GatedPlan": "ops.gated.gated",
    "gelu_and_mul": "ops.gated.gated",
    "plan_gated_activation": "ops.gated.gated",
    "silu_and_mul": "ops.gated.gated",
    "GemmPlan": "ops.gemm.execution",
    "explain_gemm": "ops.gemm.plans",
    "gemm": "ops.gemm.gemm",
    "gemm_nt": "ops.gemm.gemm",
    "grouped_gemm": "ops.gemm.gemm",
    "plan_gemm": "ops.gemm.plans",
    "supports_gemm": "ops.gemm.plans",
    "LayerNormPlan": "ops.layer_norm.layer_norm",
    "layer_norm": "ops.layer_norm.layer_norm",
    "plan_layer_norm": "ops.layer_norm.layer_norm",
    "layer_norm_backward": "ops.layer_norm_backward.execution",
    "MergePlan": "ops.merge.merge_state",
    "merge_state": "ops.merge.merge_state",
    "plan_merge_state": "ops.merge.merge_state",
    "NormPlan": "ops.norm.rms_norm",
    "plan_rms_norm": "ops.norm.rms_norm",
    "rms_norm": "ops.norm.rms_norm",
    "PrefillPlan": "ops.cache_attention.prefill_plan",
    "plan_prefill": "ops.cache_attention.planned",
    "QuantizePlan": "ops.quantize.quantize_fp8",
    "plan_quantize_fp8": "ops.quantize.quantize_fp8",
    "quantize_fp8": "ops.quantize.quantize_fp8",
    "SamplePlan": "ops.sample.sample",
    "argmax": "ops.sample.sample",
    "plan_sample": "ops.sample.sample",
    "sample": "ops.sample.sample",
    "quantize_mx": "ops.gemm.mx",
    "RotaryPlan": "ops.rotary.rotary",
    "apply_rotary_emb": "ops.rotary.rotary",
    "plan_rotary": "ops.rotary.rotary",
    "rotary_tables": "ops.rotary.tables",
    "DeviceArray": "arrays.buffers",
    "asarray": "arrays.interchange",
    "empty": "arrays.buffers",
    "from_dlpack": "arrays.interchange",
    "empty_cache": "arrays.memory",
    "DeviceProps": "arch.props",
    "AmdattnError": "errors",
    "BindingError": "errors",
    "CheckError": "errors",
    "CorruptKernel": "errors",
    "HipError": "errors",
    "ManifestError": "errors",
    "UnsupportedDeviceError": "errors",
    "UnsupportedProblem": "errors",
    "Member": "ops.attention.select",
    "Support": "op.support",
    "kernels": "device.manifest",
    "device_props": "device.runtime",
    "synchronize": "device.runtime",
    "use_device": "device.runtime",
}
_SUBMODULES = ("testing", "virtual")

__all__ = [*_HOME, *_SUBMODULES, "__version__"]  # noqa: PLE0604 -- the names are the keys


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(f"amdattn.{_HOME[name]}"), name)
    elif name in _SUBMODULES:
        value = import_module(f"amdattn.{name}")
    else:
        raise import_module("amdattn.elsewhere").missing(name, __name__, _HOME, ())
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
