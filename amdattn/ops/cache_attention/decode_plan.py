"""Plans of attention over a cache that can be run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from amdattn.dtypes import FLOAT32, as_dtype
from amdattn.op.beside import view_beside
from amdattn.op.executor import RunnablePlan
from amdattn.op.indices import private
from amdattn.op.plan import Operand
from amdattn.op.spec import OperandSpec, Role, Specs
from amdattn.ops.cache_attention.decode_problem import DecodeProblem
from amdattn.ops.cache_attention.indices import (
    IndexCheck,
    alike,
    check_pages,
    in_order,
    spread_pages,
)
from amdattn.ops.cache_attention.layouts import LAYOUTS
from amdattn.ops.cache_attention.quantized import AsQuantized, AsScales, normal, ones
from amdattn.scalars import INT32_MAX

ALIGN_BYTES = 16  # of what a lane loads at a time
_STRIDE_MULTIPLE = 8
# A load's offset has rows of 16 keys, chunks and columns of a head: less than 2^30 bytes.
_MOST_STRIDE = {"seq": 2**25, "column_chunk": 2**23, "column": 2**20, "seq_chunk": 2**25}
_ROWS = ("batch", "seq", "head")
_LOADED = ("q", "k_cache", "v_cache", "k", "v", "out")
_BY_BLOCKS = ("k_cache", "v_cache", "k", "v")
_INT32 = as_dtype("int32")


class DecodePlan(RunnablePlan[DecodeProblem]):
    """A plan that can be run. Made by `plan_decode`; see `Plan` for what it holds."""

    result_names: ClassVar[tuple[str, ...]] = ("out", "lse")
    result_labels: ClassVar[tuple[str, ...]] = ("out", "lse")

    def operands(self, variant: str) -> Specs:
        """Q, the caches, what is appended to them, what tells keys from others, out and lse."""
        p = self.problem
        element = as_dtype(p.dtype)
        q = p.batch, p.seqlen_q, p.num_heads_q
        of_kv = as_dtype(p.kv_dtype)
        new = p.batch, p.seqlen_new, p.num_heads_kv
        of_cache: Role = "inout" if p.seqlen_new else "in"
        layout = "batch, seqlen, num_heads, head_dim of q and k_cache"
        layouts = LAYOUTS[p.kv_layout]
        angles = (p.rotary_positions, p.rotary_dim // 2), as_dtype(p.rotary_dtype)
        table, room = (p.batch, p.pages_of_sequence), p.seqlen_kv - p.seqlen_new
        appended: dict[str, Any] = {
            "present": p.seqlen_new > 0,
            "condition": "seqlen_new",
            "layout": layout,
        }
        turned: dict[str, Any] = {
            "present": p.rotary_dim > 0,
            "condition": "rotary_dim",
            "layout": "positions, rotary_dim / 2",
        }

        def index(
            name: str,
            shape: tuple[int, ...],
            typical: Callable[[], Any],
            most: int,
            why: str,
            differ: str = "",
        ) -> OperandSpec:
            condition = "page_size" if name == "block_table" else name
            return OperandSpec(
                *(name, "in", shape, _INT32, ("batch",)[: len(shape) - 1]),
                present=bool(getattr(p, condition)),
                condition=condition,
                host_check=IndexCheck(shape, most, why, differ=differ),
                typical=typical,
            )

        specs = (
            OperandSpec("q", "in", (*q, p.head_dim), element, _ROWS, layout=layout),
            *(
                OperandSpec(
                    *(name, of_cache, p.cache_shape(name), of_kv, layouts[name].axes[:-1]),
                    layout=layouts[name].text(p.page_size > 0),
                    host_check=AsQuantized(of_kv) if p.is_quantized else None,
                    typical=(
                        partial(normal, p.cache_shape(name), of_kv) if p.is_quantized else None
                    ),
                )
                for name in ("k_cache", "v_cache")
            ),
            OperandSpec("k", "in", (*new, p.head_dim), element, _ROWS, **appended),
            OperandSpec("v", "in", (*new, p.head_dim_v), element, _ROWS, **appended),
            OperandSpec("rotary_cos", "in", *angles, ("position",), **turned),
            OperandSpec("rotary_sin", "in", *angles, ("position",), **turned),
            index(
                *("cache_seqlens", (p.batch,), partial(alike, room, p.batch), room),
                "keys that the cache has room for" + " beside those of k" * bool(p.seqlen_new),
            ),
            index(
                *("cache_batch_idx", (p.batch,), partial(in_order, p.num_pages, p.batch)),
                *(p.num_pages - 1, "the sequences of k_cache"),
                "k and v would be appended to one sequence twice" * bool(p.seqlen_new),
            ),
            index(
                *("cache_leftpad", (p.batch,), partial(alike, 0, p.batch)),
                *(p.seqlen_kv, "the rows of a sequence of k_cache"),
            ),
            index("block_table", table, partial(spread_pages, table, p.num_pages), -1, ""),
            *(
                OperandSpec(
                    *(name, "in", (p.num_heads_kv, 1), FLOAT32, ("head",)),
                    present=getattr(p, f"{name}s"),
                    condition=f"{name}s",
                    layout="num_heads of k_cache, 1",
                    host_check=AsScales(p.num_heads_kv, p.batch),
                    typical=partial(ones, p.num_heads_kv),
                )
                for name in ("k_descale", "v_descale")
            ),
            OperandSpec(
                *("sinks", "in", (p.num_heads_q,), FLOAT32, ()),
                present=p.sinks,
                condition="sinks",
                host_check=view_beside,
                layout="num_heads of q",
            ),
            OperandSpec("out", "out", (*q, p.head_dim_v), element, _ROWS, layout=layout),
            OperandSpec(
                *("lse", "out", (p.batch, p.num_heads_q, p.seqlen_q), FLOAT32, ("batch", "head")),
                present=p.return_lse,
                condition="return_lse",
                layout="batch, num_heads, seqlen of q",
            ),
        )
        return {spec.name: spec for spec in specs}

    def misfit(self, spec: OperandSpec, operand: Operand) -> str:
        """What in the address or strides of an operand kernels cannot take."""
        if spec.name in _LOADED:
            return _misalignment(spec, operand)
        if spec.name in ("lse", "rotary_cos", "rotary_sin"):
            return _gaps(spec, operand)
        step = operand.strides.get("batch", 0)
        if spec.name == "block_table" and not 0 <= step <= INT32_MAX:
            return f"batch stride {step}, which must be in 0..{INT32_MAX} elements"
        return ""

    def run(
        self,
        q: Any,
        k_cache: Any,
        v_cache: Any,
        k: Any = None,
        v: Any = None,
        *,
        rotary_cos: Any = None,
        rotary_sin: Any = None,
        cache_seqlens: Any = None,
        cache_batch_idx: Any = None,
        cache_leftpad: Any = None,
        block_table: Any = None,
        sinks: Any = None,
        k_descale: Any = None,
        v_descale: Any = None,
        out: Any = None,
        lse: Any = None,
        workspace: Any = None,
        stream: Any = None,
    ) -> Any:
        """Run the plan on arrays of its shapes; parameters, results as `flash_attn_with_kvcache`.

        Parameters
        ----------
        workspace : device array, optional
            Of `new_workspace`, as `GemmPlan.run` takes it. While a graph is captured it must be
            given if the plan has one.
        """
        p = self.problem
        given = {"q": q, "k_cache": k_cache, "v_cache": v_cache, "k": k, "v": v}
        given |= {"rotary_cos": rotary_cos, "rotary_sin": rotary_sin}
        given |= {"cache_seqlens": cache_seqlens, "cache_batch_idx": cache_batch_idx}
        given |= {"cache_leftpad": cache_leftpad, "block_table": block_table}
        given |= {"k_descale": k_descale, "v_descale": v_descale, "sinks": sinks}
        for name in ("block_table", "cache_seqlens") if p.page_size else ():
            given[name] = private(given[name], name)
        views, handle = self.views_of(given, stream)
        if p.page_size:
            check_pages(given["block_table"], given["cache_seqlens"], p, p.seqlen_q)
        results = self.execute(q, views, (out, lse), "", handle, workspace)
        return results if p.return_lse else results[0]


def _misalignment(spec: OperandSpec, operand: Operand) -> str:
    if operand.address % ALIGN_BYTES:
        return f"address {operand.address:#x}, which must be a multiple of {ALIGN_BYTES} bytes"
    for axis, step in operand.strides.items():
        if step % _STRIDE_MULTIPLE:
            return f"{axis} stride {step}, which must be a multiple of {_STRIDE_MULTIPLE} elements"
        most = _MOST_STRIDE.get(axis)
        if spec.name in _BY_BLOCKS and most and not 0 <= step <= most:
            return f"{axis} stride {step}, which must be in 0..{most} elements"
    return ""


def _gaps(spec: OperandSpec, operand: Operand) -> str:
    """That rows do not lie one behind the other."""
    step = spec.shape[-1]
    for axis, length in zip(reversed(spec.axes), reversed(spec.shape[:-1]), strict=True):
        if length > 1 and operand.strides[axis] != step:
            return f"{axis} stride {operand.strides[axis]}, which must be {step}, without gaps"
        step *= length
    return ""
