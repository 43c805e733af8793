"""Arguments of products as commands spell them."""

from __future__ import annotations

from amdattn.op.options import REQUIRED, Option

OPTIONS = (
    Option("m", int, REQUIRED, "Rows of a.", ("--m", "-m")),
    Option("n", int, REQUIRED, "Columns of the result.", ("--n", "-n")),
    Option("k", int, REQUIRED, "Elements of a dot product.", ("--k", "-k")),
    Option("dtype", str, "bfloat16", "bfloat16, float16, the device's float8_..., or MX types."),
    Option("out_dtype", str, "", "bfloat16, float16 or float32; default: as --dtype."),
    Option("bias", bool, False, "Add a bias per column.", ("--bias",)),
    Option("alpha", float, 1.0, "Factor of the product."),
    Option("activation", str | None, None, "As in gemm_nt; with ..._and_mul b has 2 n rows."),
    Option("split_k", int, 0, "Splits of k; 0: the plan chooses."),
    Option("aligned", bool, True, "Rows of a and b begin at multiples of 4 bytes."),
    Option(
        "b_dtype", str, "", "Element type of b if it is the other 8-bit type; default: as --dtype."
    ),
    Option(
        "scale_a", str | None, None, "Scales of 8-bit a: tensor, row, block or mx; default: none."
    ),
    Option("scale_b", str | None, None, "Scales of 8-bit b, as --scale-a."),
    Option("deterministic", bool, True, "Add splits of k in order, or atomically."),
    Option("layout", str, "nt", "nt; nn, with b (k, n); or tn, also with a (k, m)."),
    Option("adds", str | None, None, "Also add c before the activation, or a residual after it."),
    Option("beta", float, 1.0, "Factor of c."),
    Option("batch", int, 0, "Products of a launch, each with its own operands; 0: one."),
    Option("groups", int, 0, "Groups of rows of a, each with its own b; timed with equal groups."),
    Option("rms_eps", float | None, None, "Normalise the rows of a first, with this epsilon."),
)
