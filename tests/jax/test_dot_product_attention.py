"""amdattn.jax.dot_product_attention against jax.nn's own in float32, on the same inputs."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import amdattn.jax
from amdattn.errors import UnsupportedProblem
from amdattn.jax.dot_product_attention import _HAS_RESIDUAL

_LENGTHS = (1, 2, 17, 31, 63, 64, 65, 100, 127, 128, 129, 190)
_HEADS = ((1, 1), (2, 1), (4, 2), (6, 2), (3, 3), (8, 1), (5, 1))
_DIMS = (8, 16, 40, 64, 64, 72, 96, 128, 128, 192, 256)


@dataclass(frozen=True)
class Case:
    """A call; `seed` gives its inputs."""

    seed: int
    batch: int  # 0: arrays of three axes
    rows: int
    keys: int
    heads: tuple[int, int]
    dim: int
    dtype: str
    is_causal: bool
    window: int | tuple[int, int] | None
    lengths: tuple[bool, bool]
    scale: float | None
    residual: bool

    def __str__(self) -> str:
        parts = [
            f"{self.seed}-b{self.batch}-t{self.rows}-s{self.keys}-h{self.heads[0]}:{self.heads[1]}"
        ]
        parts += [f"d{self.dim}", self.dtype, "causal" * self.is_causal, f"w{self.window}"]
        parts += ["q" * self.lengths[0] + "kv" * self.lengths[1]]
        return "-".join(part for part in parts if part)

    def inputs(self) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
        rng = np.random.default_rng(self.seed)
        leading = (self.batch,) if self.batch else ()
        n, k = self.heads
        shapes = [(self.rows, n), (self.keys, k), (self.keys, k)]
        arrays = [
            rng.standard_normal((*leading, *shape, self.dim)).astype(jnp.dtype(self.dtype))
            for shape in shapes
        ]
        named = {}
        # Also none, one, all, and more than there are.
        for given, name, most in (
            (self.lengths[0], "query_seq_lengths", self.rows),
            (self.lengths[1], "key_value_seq_lengths", self.keys),
        ):
            if given:
                choices = [0, 1, most // 2, most, most + 3, int(rng.integers(0, most + 1))]
                named[name] = rng.choice(choices, self.batch or 1).astype(np.int32)
        return arrays, named

    def options(self) -> dict[str, Any]:
        return {
            "is_causal": self.is_causal,
            "local_window_size": self.window,
            "scale": self.scale,
        }


def random_case(seed: int) -> Case:
    rng = np.random.default_rng(10_000 + seed)
    rows, keys = (int(rng.choice(_LENGTHS)) for _ in range(2))
    if rng.random() < 0.3:
        keys = rows
    widths = [0, 1, 5, 30, 64, 100, 400]
    window: Any = None
    if rng.random() < 0.5:
        window = tuple(int(x) for x in rng.choice(widths, 2))
        window = window[0] if rng.random() < 0.4 else window
    return Case(
        seed,
        batch=int(rng.choice([0, 1, 2, 3])),
        rows=rows,
        keys=keys,
        heads=_HEADS[rng.integers(len(_HEADS))],
        dim=int(rng.choice(_DIMS)),
        dtype=str(rng.choice(["bfloat16", "float16"])),
        is_causal=bool(rng.random() < 0.5),
        window=window,
        lengths=(bool(rng.random() < 0.35), bool(rng.random() < 0.35)),
        scale=[None, 0.3, 0.05][rng.integers(3)],
        residual=bool(rng.random() < 0.4),
    )


def every_mask() -> list[Case]:
    """Each combination of masks and lengths, where lengths of queries and keys differ both ways."""
    sizes = itertools.cycle(((65, 100), (100, 65), (64, 64)))
    return [
        Case(1000 + i, 2, *next(sizes), (4, 2), 64, "bfloat16", causal, window, lengths, None, True)
        for i, (causal, window, lengths) in enumerate(
            itertools.product(
                (False, True),
                (None, 7, (0, 0), (20, 0), (0, 20)),
                itertools.product((False, True), repeat=2),
            )
        )
    ]


CASES = [*every_mask(), *map(random_case, range(280))]
# Of three roundings to nearest: of probabilities, of values that XLA rounds, of the result.
_ROUNDING = {"bfloat16": 3 * 2.0**-9, "float16": 3 * 2.0**-12}


def close(found: Any, expected: Any, dtype: str) -> None:
    found, expected = np.asarray(found, np.float32), np.asarray(expected, np.float32)
    assert found.shape == expected.shape
    assert np.isfinite(found).all()
    allowed = _ROUNDING[dtype] * max(1.0, float(np.abs(expected).max())) + 1e-3
    assert float(np.abs(found - expected).max()) <= allowed


@pytest.fixture(autouse=True)
def programs() -> Iterator[None]:
    """Of each case there are its own, several MB of them."""
    yield
    jax.clear_caches()


def test_there_are_enough() -> None:
    assert len(CASES) >= 300 and len({str(case) for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_equals_jax_nn(case: Case) -> None:
    arrays, lengths = case.inputs()
    residual = case.residual and _HAS_RESIDUAL
    found = amdattn.jax.dot_product_attention(
        *arrays, **lengths, **case.options(), return_residual=residual
    )
    in_float32 = [x.astype(np.float32) for x in arrays]
    plain = functools.partial(
        amdattn.jax.dot_product_attention,
        **case.options(),
        return_residual=residual,
        implementation="xla",
    )
    expected = jax.jit(plain)(*in_float32, **lengths)  # compiled once, not by the operation
    if not residual:
        found, expected = (found,), (expected,)
    assert found[0].dtype == arrays[0].dtype
    close(found[0], expected[0], case.dtype)
    if residual:
        masked = np.asarray(expected[1]) < -1e30
        assert found[1].dtype == arrays[0].dtype
        of_masked = np.asarray(found[1], np.float32)[masked]
        assert (of_masked < -1e30).all()  # -inf in float16, which has no such number
        close(np.where(masked, 0, found[1]), np.where(masked, 0, expected[1]), case.dtype)


def test_under_jit_with_traced_lengths() -> None:
    case = random_case(3)
    arrays, _ = Case(**{**case.__dict__, "batch": 2, "lengths": (False, False)}).inputs()

    @jax.jit
    def f(q: Any, k: Any, v: Any, lengths: Any) -> Any:
        return amdattn.jax.dot_product_attention(q, k, v, key_value_seq_lengths=lengths)

    for lengths in ([1, 2], [5, 0]):
        given = np.array(lengths, np.int32)
        expected = jax.nn.dot_product_attention(
            *(x.astype(np.float32) for x in arrays), key_value_seq_lengths=given
        )
        close(f(*arrays, given), expected, case.dtype)


@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize("by", [None, "xla"])
def test_gradients_are_those_of_jax_nn(lengths: bool, by: Any) -> None:
    case = Case(5, 2, 40, 33, (4, 2), 64, "bfloat16", True, (9, 3), (lengths, lengths), None, False)
    arrays, named = case.inputs()
    weights = np.random.default_rng(6).standard_normal(arrays[0].shape).astype(np.float32)

    def loss(implementation: str | None, backward: str | None) -> Any:
        def f(q: Any, k: Any, v: Any) -> Any:
            out = amdattn.jax.dot_product_attention(
                *(q, k, v),
                **named,
                **case.options(),
                implementation=implementation,
                **({} if implementation else {"implementation_backward": backward}),
            )
            return (out.astype(jnp.float32) * weights).sum()

        return f

    found = jax.jit(jax.grad(loss(None, by), argnums=(0, 1, 2)))(*arrays)
    expected = jax.grad(loss("xla", None), argnums=(0, 1, 2))(
        *(x.astype(np.float32) for x in arrays)
    )
    for one, other in zip(found, expected, strict=True):
        close(one, other, case.dtype)


def arrays_of(**changed: Any) -> list[np.ndarray]:
    case = Case(
        **{**random_case(0).__dict__, "batch": 2, "dim": 64, "dtype": "bfloat16", **changed}
    )
    return case.inputs()[0]


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"bias": np.zeros((1, 1, 1, 1), np.float32)}, "bias"),
        ({"mask": np.ones((1, 1, 1, 1), bool)}, "mask"),
        ({"local_window_size": (-1, 3)}, "local_window_size"),
    ],
)
def test_what_no_kernel_does_names_its_argument(options: Any, argument: str) -> None:
    arrays = arrays_of()
    with pytest.raises(UnsupportedProblem, match=argument) as raised:
        amdattn.jax.dot_product_attention(*arrays, **options)
    assert 'implementation="xla"' in str(raised.value)
    amdattn.jax.dot_product_attention(*arrays, **options, implementation="xla")


def test_types_that_no_kernel_has() -> None:
    arrays = [x.astype(np.float32) for x in arrays_of()]
    with pytest.raises(UnsupportedProblem, match=r'query has dtype float32.*implementation="xla"'):
        amdattn.jax.dot_product_attention(*arrays)
    mixed = [arrays_of()[0], *(x.astype(np.float16) for x in arrays[1:])]
    with pytest.raises(ValueError, match="key has dtype float16"):
        amdattn.jax.dot_product_attention(*mixed)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"implementation": "cudnn"}, "implementation='cudnn'"),
        ({"implementation_backward": "cudnn"}, "implementation_backward='cudnn'"),
        ({"query_seq_lengths": np.zeros(3, np.int32)}, "query_seq_lengths has shape"),
        ({"key_value_seq_lengths": np.zeros(2, np.float32)}, "key_value_seq_lengths has"),
    ],
)
def test_malformed_arguments(options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        amdattn.jax.dot_product_attention(*arrays_of(), **options)


def test_shapes_that_do_not_fit() -> None:
    q, k, v = arrays_of(rows=8, keys=9, heads=(4, 2))
    for wrong, message in (
        ((q, k, v[:, :-1]), "value has shape"),
        ((q[:1], k, v), "B and H must be equal"),
        ((q[..., :32], k, v), "B and H must be equal"),
        ((q[:, :, :3], k, v), "num_heads_kv=2 must divide num_heads_q=3"),
        ((q[None], k, v), "query has shape"),
    ):
        with pytest.raises(ValueError, match=message):
            amdattn.jax.dot_product_attention(*wrong)
