"""Arguments of products as commands spell them."""

from __future__ import annotations

from amdattn.op.options import REQUIRED, Option

OPTIONS = (
    Option("m", int, REQUIRED, "Rows of a.", ("--m", "-m")),
    Option("n", int, REQUIRED, "Columns of the result.", ("--n", "-n")),
    Option("k", int, REQUIRED, "Elements that are summed over.", ("--k", "-k")),
    Option("dtype", str, "bfloat16", "bfloat16, float16, the device's float8_..., or MX types."),
    Option("out_dtype", str, "", "bfloat16, float16 or float32; default: as --dtype."),
    Option("bias", bool, False, "Add one of every column.", ("--bias",)),
    Option("alpha", float, 1.0, "Factor of the product."),
    Option("activation", str | None, None, "As of gemm_nt; with ..._and_mul b has 2 n rows."),
    Option("split_k", int, 0, "Splits of k; 0: the plan chooses."),
    Option("aligned", bool, True, "Rows of a and b begin at multiples of 4 bytes."),
    Option("b_dtype", str, "", "Of b, where it is the other 8-bit type; default: as --dtype."),
    Option("scale_a", str | None, None, "Of 8-bit types: tensor, row, block or mx; default: none."),
    Option("scale_b", str | None, None, "As --scale-a, of b."),
    Option("deterministic", bool, True, "Add splits of k in their order, or atomically."),
    Option("layout", str, "nt", "nt; nn, with b (k, n); or tn, with a (k, m), too."),
    Option("adds", str | None, None, "Also add c, before the activation, or a residual, behind."),
    Option("beta", float, 1.0, "Factor of c."),
    Option("batch", int, 0, "Products of a launch, each with operands of its own."),
    Option("groups", int, 0, "Groups of rows of a, each with its own b; tried with equal ones."),
    Option("rms_eps", float | None, None, "Normalise rows of a with this added to mean squares."),
)
