"""Names of other libraries, and the names of the same functions here."""

from __future__ import annotations

from collections.abc import Collection

# Names without capitals and underscores -> public names of amdattn, the nearest first, and a note.
_TARGETS: dict[tuple[str, ...], tuple[tuple[str, ...], str]] = {
    ("softmax", "logsoftmax"): (
        ("flash_attn_func", "sample"),
        "softmax is part of attention and of drawing tokens; there is no separate function",
    ),
    ("rope", "rotary", "rotaryembedding", "applyrope", "applyrotary", "applyrotaryposemb"): (
        ("apply_rotary_emb",),
        "",
    ),
    ("linear", "scaledmm"): (("gemm_nt",), "x @ weight.T, with a bias and an activation"),
    ("matmul", "mm", "bmm", "dot", "addmm", "baddbmm"): (
        ("gemm", "gemm_nt"),
        "a @ b with layout='nn'",
    ),
    ("groupedmm", "groupedmatmul"): (("grouped_gemm",), ""),
    ("layernorm",): (("layer_norm", "rms_norm"), ""),
    ("rmsnorm", "fusedrmsnorm"): (("rms_norm",), ""),
    ("attention", "flashattention", "flashattn", "scaleddotproductattention", "sdpa", "mha"): (
        ("flash_attn_func", "dot_product_attention"),
        "q, k and v are (batch, seqlen, heads, head_dim)",
    ),
    ("dotproductattention",): (("dot_product_attention", "flash_attn_func"), ""),
    ("pagedattention", "decodeattention"): (("flash_attn_with_kvcache",), ""),
    ("mergestates", "mergeattentionstates"): (("merge_state",), ""),
    ("silu", "swish", "swiglu", "siluandmul"): (
        ("silu_and_mul", "gemm_nt"),
        "of gate and factor, or as an activation of a product",
    ),
    ("gelu", "geglu", "geluandmul"): (
        ("gelu_and_mul", "gemm_nt"),
        "of gate and factor, or as an activation of a product",
    ),
    ("multinomial", "categorical", "topk", "topp", "topksampling", "topptopk", "toppsampling"): (
        ("sample", "argmax"),
        "top_k and top_p are arguments",
    ),
    ("greedy",): (("argmax",), ""),
    ("quantize", "quantise", "quantizetofp8", "scaledquant"): (
        ("quantize_fp8", "quantize_mx"),
        "",
    ),
}
_BY_NAME = {name: found for names, found in _TARGETS.items() for name in names}


def known() -> tuple[str, ...]:
    """Every name of another library that is known here, without capitals and underscores."""
    return tuple(_BY_NAME)


def targets(name: str, module: str, have: Collection[str], outside: Collection[str]) -> list[str]:
    """Qualified names for `name`: in `module`, which has `have`, else in amdattn (`outside`)."""
    wanted, _ = _BY_NAME.get(name.replace("_", "").lower(), ((), ""))
    found = [f"{module}.{one}" for one in wanted if one in have]
    return found or [f"amdattn.{one}" for one in wanted if one in outside]


def missing(
    name: str, module: str, have: Collection[str], outside: Collection[str]
) -> AttributeError:
    """The error for a name that a module lacks, with the names to use instead."""
    text = f"module {module!r} has no attribute {name!r}"
    if found := targets(name, module, have, outside):
        _, note = _BY_NAME[name.replace("_", "").lower()]
        text += f"; there is {' and '.join(found)}{note and f' ({note})'}"
    return AttributeError(text, name=name)
