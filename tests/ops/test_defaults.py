"""What is not told: an argument of one name has one default, in every function and every record.

The table is of names, so a default that differs from its namesakes is seen wherever it stands.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import inspect
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest

import amdattn

# The same everywhere: what flash-attn, BLAS and Triton's do_bench have for theirs, else "not told".
_NAMES: tuple[tuple[Any, str], ...] = (
    (
        False,
        "causal sinks top_left return_lse lse return_attn_probs deterministic bias with_inputs "
        "read_only copied is_output as_json markdown wide details mixed allow_mixed cast quick "
        "version kernels dry_run annotate advice quiet packed special warm loaded "
        "inverse shared cache_seqlens cache_batch_idx cache_leftpad return_softmax_lse "
        "qk_norm q_norm k_norm near in_place partly is_tiled tile_inputs is_whole dlse exact "
        "interleaved inplace check profile",
    ),
    (
        0,
        "num_splits split_k head_dim_v heads_kv seqlen_kv seed stream clock_mhz flops workgroups "
        "simulated_workgroups simulated_xcd trace_events events max_errors dynamic_lds total_q "
        "dynamic_lds_bytes total_kv max_seqlen_q max_seqlen_k candidates fill q_tile residents "
        "resident_workgroups rounds parts captured admitted began memory results stride array "
        "apart mask seqlen_new page_size num_pages rotary_dim rotary_positions max_seqlen_kv "
        "max_total_kv prefix_pages least groups heads_k table_rows seqlen_offsets",
    ),
    (
        (),
        "strides longest variables readings late rejected notes options lengths choices numbers "
        "regions entries splits zero_at_end others inputs offsets defines includes flags "
        "other_producers",
    ),
    (True, "late_loads late_stores warm_code aligned of_blocks keep whole gaps rotary_interleaved"),
    (0.0, "softcap dropout_p seconds now vector_slots lds_bytes l1_bytes l2_bytes hbm_bytes"),
    (1, "batch passes scale_v schedules column_groups tile_heads num_heads_q num_heads_kv count"),
    (1, "lost_slots left"),
    ((-1, -1), "window_size window"),
    (1.0, "alpha beta factor"),
    (128, "head_dim"),
    (64, "heads_at_once"),
)
_PLAIN = {"rms": False, "residual": False}
COMMON = {name: default for default, names in _NAMES for name in names.split()}
# Those that have another one, and why.
OWN: dict[str, dict[str, Any]] = {
    # None, or one, unless somebody counts them.
    "ops.attention.problem.AttentionProblem": {"gaps": 0},
    # Whether one is given, not the array.
    "ops.quantize.problem.QuantizeProblem": {"scale": False},
    # Of the numbers that a case has, not an array of scales.
    **{
        f"ops.{name}": {"scale": 1.0}
        for name in (
            *("layer_norm.cases.LayerNormCase", "norm.cases.NormCase"),
            *("layer_norm_backward.cases.LayerNormBackwardCase",),
            *("norm_backward.cases.NormBackwardCase",),
        )
    },
    "ops.attention.varlen_cost.best_cut": {"class_log2": 0},
    "ops.attention_backward.splitting.Splits": {
        **{"heads": 1, "rows": 1, "whole_blocks": 0, "whole_rows": -1},
    },
    # Orders of BLAS: sums of parts in one order unless told that any is good enough.
    "ops.gemm.gemm.gemm": {"deterministic": True},
    "ops.gemm.gemm.gemm_nt": {"deterministic": True},
    "ops.gemm.problem.GemmProblem": {"deterministic": True, "batch": 0},  # 0: no such axis
    "cli.bench_gemm.gemm": {"deterministic": True},
    "cli.tune.gemm": {"deterministic": True, "rows": 8},
    # Sizes of a command: a layer of an LLM, or what a checked run takes a moment for.
    "cli.bench.attention": {"heads_q": 32, "seqlen_q": 4096},
    "cli.check.check": {"heads_q": 2, "seqlen_q": 300, "lse": True},
    "cli.operations.demo": {"heads_q": 2, "seqlen_q": 300},
    "cli.bench_launch.launch": {"rounds": 300},
    "cli.bench_llama.llama": {"context": 4096, "prompt": 0},
    # A plan of its own unless another one merges what it finds.
    **{
        f"ops.{name}.build": {"keeps_floats": False}
        for name in (
            *("attention.planning", "cache_attention.decode_planning"),
            "cache_attention.prefill_planning",
        )
    },
    "op.indices.private": {"nested": True},
    # As samplers of Hugging Face: everything may be drawn.
    **{
        f"ops.sample.{name}": {
            **{"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0},
            **{"repetition_penalty": 1.0, **more},
        }
        for name, more in (
            ("problem.SampleProblem", {"history": 0}),
            ("sample.sample", {"seed": 0}),
        )
    },
    # As PyTorch's layer_norm; a state that one call has advanced.
    **{
        f"{module}.{name}": {"eps": 1e-5, **more}
        for module, name, more in (
            ("ops.layer_norm.layer_norm", "layer_norm", {}),
            (
                "ops.layer_norm.problem",
                "LayerNormProblem",
                _PLAIN,
            ),
            *(
                (f"ops.layer_norm_backward.{name}", function, {"rms": False, "behind": 1, **more})
                for name, function, more in (
                    ("execution", "layer_norm_backward", {"bias": True}),
                    ("problem", "LayerNormBackwardProblem", _PLAIN),
                )
            ),
        )
    },
    "ops.layer_norm.layer_norm.state_of": {"on_device": True},
    # Scores of N(0, 1), and the first row of the first head.
    "bench.inputs.Head": {"sd": 1.0, **dict.fromkeys(("log_norms", "rising", "above", "at"), 0.0)},
    "bench.inputs.Place": {"row": 0, "head": 0},
    # As Triton's, in ms.
    "testing.bench.do_bench": {"warmup": 25, "rep": 100},
    "checking.arguments.Buffer": {"low": 0, "high": 100},
    "checking.findings.Finding": {"workgroup": (0, 0, 0), "wave": 0, "lane": -1},
    "checking.schedules.Schedule": {"quantum": 8},
    "checking.session.Check.declare": {"read_only": ()},
    "virtual.check": {"read_only": ()},
    "arrays.dlpack_import.import_tensor": {"device": (1, 0)},  # kDLCPU
    "ops.attention.facts.AttentionFacts._count": {"most": 2**31 - 1, "default": 0},
    "ops.attention.kv_split.Costs.of_range": {"parts": 1},
    "ops.attention.kv_split.Split": {"part_blocks": 0},
    "ops.attention.work.WorkMap": {"part_blocks": 0, "in_pairs": False},
    "ops.cache_attention.indices.IndexCheck": {"most": -1, "total": -1},
    "ops.cache_attention.decode_problem.DecodeProblem": {
        **{"k_descale": 1.0, "v_descale": 1.0},
        **{"k_descales": False, "v_descales": False},
    },
    "ops.cache_attention.prefill_problem.PrefillProblem": {
        **{"k_descale": 1.0, "v_descale": 1.0},
        **{"k_descales": False, "v_descales": False},
    },
    "ops.cache_attention.cases.CacheCase": {"lengths": (), "chunks": ()},
    "ops.attention.call.run": {"longest": (0, 0)},  # of q and of k
    "ops.attention_backward.call.run": {"longest": (0, 0)},
    "ops.attention_backward.cases.case": {"seqlen_q": 0, "head_dim": 64},
    "op.spec.OperandSpec": {"present": True},
    "op.workspace.Region": {"offset": 0},
    "op.zero_at_rest._Use": {"captured_on": 0},
    "tuning.tune": {"some": ()},
    "ops.attention.cases.AttentionCase": {"scale_v": 1},
    "ops.attention.cases.case": {"scale_v": 1, "seqlen_q": 0},
    "ops.norm.rms_norm.rms_norm": {"eps": 1e-6},
    # As the norms of heads that models have.
    "ops.rotary.problem.RotaryProblem": {"norm_eps": 1e-6},
    "ops.rotary.rotary.apply_rotary_emb": {"norm_eps": 1e-6},
    "ops.rotary.tables.rotary_tables": {"base": 10000.0},  # as most models have it
    "ops.norm.problem.NormProblem": {"eps": 1e-6, "residual": False},
    "ops.norm_backward.problem.NormBackwardProblem": {"eps": 1e-6, "residual": False},
    "cli.tune._time": {"shown": 8},
    "arch.energies.mi355x": {
        **{"gemm_ghz": 1.6, "idle_watts": 200.0, "large_tile": 1.0, "plain_valu": 0.5},
    },
    "arch.energies.mi300x": {"large_tile": 1.26, "plain_valu": 0.5},  # docs/performance-model.md
    "report.kernels.Guarded": {"guard": 8},
    # Of what files hold: no number or list is longer.
    "device.manifest_schema._integer": {"most": 1 << 40},
    "device.manifest_schema._list_of": {"least": 1, "most": 64},
    "report.replays.replays": {"count": 200},
    # Micro kernels: one wave, or as many as a rate of a CU needs.
    "bench.micro_launch.Micro.launch": {"workgroups": 1, "waves": 1},
    "bench.micro_rows.Clk": {"copies": 32, "waves": 1},
    "bench.micro_rows.LdsRate": {"copies": 32, "waves": 8},
    "bench.micro_rows.Latency": {"evicted": 65536},
    "bench.shipped_launches.ShippedLaunches": {"merges": True},
    "bench.report.stall_text": {"most": 2},
    "bench.replay.Speed": {"warm": 0.0},
    "bench.replay._ComputeUnit": {"version": 0},
    "bench.plots._figure": {"height": 5.5},
}
HAS_JAX = importlib.util.find_spec("jax") is not None
if HAS_JAX:
    OWN |= {
        "jax.dot_product_attention.dot_product_attention": {
            "is_causal": False,
            "return_residual": False,
        },
        "jax.products.gemm": {"deterministic": True},
        "jax.products.gemm_nt": {"deterministic": True},
        "jax.operations.rms_norm": {"eps": 1e-6},
        "jax.layer_norm.layer_norm": {"eps": 1e-5},
        "jax.tokens.apply_rotary_emb": {"norm_eps": 1e-6},
        "jax.tokens.sample": {
            **{"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": 0},
            "repetition_penalty": 1.0,
        },
    }
CHANGING = {
    "bench.replay._ComputeUnit",
    "arrays.views.View",  # its owner and its padding are found later
    "report.supervise.Outcome",
    "op.staging._Chunk",
    "op.zero_at_rest._Use",
}


def modules() -> Iterator[str]:
    """Of the package; those of amdattn.jax if there is JAX."""
    for found in pkgutil.walk_packages(amdattn.__path__, "amdattn."):
        if HAS_JAX or not found.name.startswith("amdattn.jax"):
            yield found.name


def signatures() -> Iterator[tuple[str, str, Any]]:
    """Every function's parameters that have a plain default: function, name and default."""
    for of in modules():
        module = importlib.import_module(of)
        for name, value in vars(module).items():
            if getattr(value, "__module__", None) != of:
                continue
            where = f"{of.removeprefix('amdattn.')}.{name}"
            if inspect.isfunction(value):
                yield from plain(where, value)
            elif inspect.isclass(value):
                for method, function in vars(value).items():
                    if inspect.isfunction(function):
                        yield from plain(f"{where}.{method}".removesuffix(".__init__"), function)


def plain(where: str, function: Any) -> Iterator[tuple[str, str, Any]]:
    for name, parameter in inspect.signature(function).parameters.items():
        if type(parameter.default) in (bool, int, float, tuple):
            yield where, name, parameter.default


def test_one_default_of_a_name() -> None:
    wrong, seen = [], set()
    for where, name, default in signatures():
        expected = OWN.get(where, {}).get(name, COMMON.get(name))
        seen.add((where, name))
        if (type(default), default) != (type(expected), expected):
            wrong.append(f"{where}({name}={default!r}), not {expected!r}")
    assert not wrong
    stale = {(where, name) for where, names in OWN.items() for name in names} - seen
    assert not stale


def test_records_cannot_be_changed_by_mistake() -> None:
    """A class is frozen unless its instances are meant to change, which those here are."""
    changing = set()
    for of in modules():
        for value in vars(importlib.import_module(of)).values():
            if getattr(value, "__module__", None) == of and dataclasses.is_dataclass(value):
                parameters = value.__dataclass_params__  # type: ignore[union-attr]
                if not parameters.frozen:
                    changing.add(f"{of.removeprefix('amdattn.')}.{value.__name__}")
    assert changing == CHANGING


@pytest.mark.parametrize("plan", ["AttentionPlan", "GemmPlan"])
def test_plans_have_a_short_repr(plan: str) -> None:
    made = {
        "AttentionPlan": lambda: amdattn.plan_attention(1, 300, 300, 8, 8, 128, device="MI300X"),
        "GemmPlan": lambda: amdattn.plan_gemm(5, 80, 1024, device="MI300X"),
    }[plan]()
    assert len(repr(made)) < 200 and "\n" not in repr(made)
