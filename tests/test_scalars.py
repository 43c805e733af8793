"""Numbers, flags and words that calls take: arrays without axes are read, the rest is refused."""

import inspect

import ml_dtypes
import numpy as np
import pytest

import amdattn
from amdattn import scalars
from amdattn.ops.attention import dense as attention
from amdattn.ops.gemm.problem import GemmProblem

BF16 = ml_dtypes.bfloat16


class Tensor:
    """An array without axes as torch has it: looked up by identity, changed in place."""

    def __init__(self, value, shape=()):
        self.value = value
        self.shape = shape

    def item(self):
        return self.value

    def __float__(self):
        return float(self.value)

    def __index__(self):
        return int(self.value)

    def __bool__(self):
        return bool(self.value)


class Traced(Tensor):
    def item(self):
        raise TypeError("the value is not known\nat this time")


def qkv(*lengths):
    rng = np.random.default_rng(3)
    return [rng.standard_normal(shape).astype(BF16) for shape in lengths]


def dense(**options):
    q, k, v = qkv((1, 9, 4, 64), (1, 40, 2, 64), (1, 40, 2, 64))
    return amdattn.flash_attn_func(q, k, v, **options)


def kvpacked(**options):
    q, kv = qkv((1, 9, 4, 64), (1, 40, 2, 2, 64))
    return amdattn.flash_attn_kvpacked_func(q, kv, **options)


def qkvpacked(**options):
    return amdattn.flash_attn_qkvpacked_func(*qkv((1, 24, 3, 2, 64)), **options)


_SUMS = np.array([0, 3, 24], np.int32)


def varlen(max_seqlen_q=21, max_seqlen_k=21, **options):
    q, k, v = qkv(*[(24, 2, 64)] * 3)
    return amdattn.flash_attn_varlen_func(
        q, k, v, _SUMS, _SUMS, max_seqlen_q, max_seqlen_k, **options
    )


def varlen_kvpacked(max_seqlen_q=21, max_seqlen_k=21, **options):
    q, kv = qkv((24, 2, 64), (24, 2, 2, 64))
    return amdattn.flash_attn_varlen_kvpacked_func(
        q, kv, _SUMS, _SUMS, max_seqlen_q, max_seqlen_k, **options
    )


def varlen_qkvpacked(max_seqlen=21, **options):
    (qkv_,) = qkv((24, 3, 2, 64))
    return amdattn.flash_attn_varlen_qkvpacked_func(qkv_, _SUMS, max_seqlen, **options)


def varlen_paged(**options):
    q, k, v = qkv((24, 2, 64), *[(4, 16, 2, 64)] * 2)
    table = np.arange(4, dtype=np.int32).reshape(2, 2)
    return amdattn.flash_attn_varlen_func(
        q, k, v, _SUMS, _SUMS, 21, 21, block_table=table, **options
    )


def product(**options):
    a, b, c = qkv((4, 128), (32, 128), (4, 32))
    return amdattn.gemm_nt(a, b, c=c, **options)


def planned(**options):
    sizes = dict(batch=1, seqlen_q=9, seqlen_kv=40, num_heads_q=4, num_heads_kv=2, head_dim=64)
    return amdattn.plan_attention(**{**sizes, **options}, device="MI300X")


def planned_product(**options):
    return amdattn.plan_gemm(**{"m": 4, "n": 32, "k": 128, "adds": "c", **options}, device="MI300X")


def empty(shape=4):
    return amdattn.empty(shape)


CALLS = {
    dense: amdattn.flash_attn_func,
    kvpacked: amdattn.flash_attn_kvpacked_func,
    qkvpacked: amdattn.flash_attn_qkvpacked_func,
    varlen: amdattn.flash_attn_varlen_func,
    varlen_paged: amdattn.flash_attn_varlen_func,
    varlen_kvpacked: amdattn.flash_attn_varlen_kvpacked_func,
    varlen_qkvpacked: amdattn.flash_attn_varlen_qkvpacked_func,
    product: amdattn.gemm_nt,
    planned: attention.AttentionProblem,
    planned_product: GemmProblem,
    empty: amdattn.empty,
}
# Two values of each scalar argument, between which a result or a plan differs if it does at all.
NUMBERS = {"softmax_scale": (0.1, 0.7), "softcap": (1.0, 20.0), "dropout_p": (0.0, 0.0)}
NUMBERS |= {"alpha": (1.0, -2.0), "beta": (1.0, -2.0), "rms_eps": (1e-6, 9.0)}
INTEGERS = {"num_splits": (1, 2), "split_k": (1, 2), "batch": (1, 2), "stream": (0, 0)}
INTEGERS |= dict.fromkeys(("max_seqlen_q", "max_seqlen_k", "max_seqlen"), (21, 24))
INTEGERS |= dict.fromkeys(("seqlen_q", "seqlen_kv"), (9, 300))
INTEGERS |= dict.fromkeys(("num_heads_q", "head_dim", "head_dim_v"), (64, 128))
INTEGERS |= {"num_heads_kv": (2, 4), "total_q": (), "total_kv": (), "gaps": (), "shape": (4, 8)}
INTEGERS |= {"max_total_k": (24, 30), "groups": (1, 2)}
INTEGERS |= {"m": (4, 8), "n": (32, 64), "k": (128, 256)}
FLAGS = dict.fromkeys(("causal", "deterministic", "top_left", "sinks", "bias"), (False, True))
FLAGS |= dict.fromkeys(("return_attn_probs", "return_lse", "aligned"), (False, True))
WORDS = {"round_mode", "layout", "activation", "gather", "kv_layout", "scale_a", "scale_b"}
WORDS |= {"adds"}
OF_PAGES = {"kv_layout", "max_total_k"}  # which only arrays in pages have
# Arrays, dtypes, and pairs, which have tests of their own.
OTHERS = {
    *("q", "k", "v", "kv", "qkv", "cu_seqlens_q", "cu_seqlens_k", "cu_seqlens", "out", "lse"),
    *("alibi_slopes", "block_table", "a", "b", "workspace", "out_dtype", "dtype", "window_size"),
    "b_dtype",
    *("device", "k_descale", "v_descale", "seqused_k", "c", "residual"),
}
ARRAYS = ("sinks", "bias", "k", "scale_a", "scale_b")  # of some calls
ARRAY_NAMES = {dense: {"sinks"}, product: {"bias"}}


def _arguments(call):
    for name in inspect.signature(CALLS[call]).parameters:
        is_array = call not in (planned, planned_product) and name in ARRAYS
        if name in OTHERS and not (call is planned_product and name == "k"):
            continue
        if not is_array and (call is varlen_paged) == (name in OF_PAGES):
            yield name


CASES = [(call, name) for call in CALLS for name in _arguments(call)]


def test_every_argument_has_a_row():
    known = {*NUMBERS, *INTEGERS, *FLAGS, *WORDS}
    assert {name for _, name in CASES} <= known
    assert {"softmax_scale", "softcap", "alpha", "num_splits", "max_seqlen"} <= {
        name for _, name in CASES
    }


def _same(a, b):
    if hasattr(a, "explain"):
        return a is b
    if isinstance(a, amdattn.DeviceArray):
        return a.shape == b.shape
    a, b = ([*x[:2]] if isinstance(x, tuple) else [x] for x in (a, b))
    return len(a) == len(b) and all(
        np.array_equal(x.astype("f4"), y.astype("f4")) for x, y in zip(a, b, strict=True)
    )


@pytest.mark.parametrize(
    ("call", "name"),
    [c for c in CASES if c[1] not in WORDS | {"total_q", "total_kv", "gaps", "stream"}],
)
def test_a_changed_value_counts(call, name):
    values = {**NUMBERS, **INTEGERS, **FLAGS}[name]
    box = Tensor(values[0])
    for value in values:
        box.value = value
        assert _same(call(**{name: box}), call(**{name: value})), value
        assert _same(call(**{name: np.asarray(value)[()]}), call(**{name: value})), value
    if name in ("softmax_scale", "alpha", "beta") or (name == "softcap"):
        box.value = values[0]
        first = call(**{name: box})
        box.value = values[1]
        assert not _same(first, call(**{name: box}))


@pytest.mark.parametrize(("call", "name"), [c for c in CASES if c[1] not in WORDS])
def test_what_is_no_such_value_is_refused_by_name(call, name):
    wrong = ["1", b"1", 1j, [1], {}, object(), Tensor(1, (1,)), np.ones(1), Traced(1)]
    if name not in ("shape",):
        wrong.append(np.ones((1, 2)))
    else:
        wrong = [w for w in wrong if not isinstance(w, (list, np.ndarray))] + [["1"], [2.0]]
    if name in FLAGS:
        wrong += [1, 0.0]
        if not (call is planned or name in ("deterministic", "bias")):
            wrong += [None]
    else:
        wrong += [True, np.True_, Tensor(True)]
    if name in INTEGERS:
        wrong += [2.0, np.float32(2.0), Tensor(2.0)]
    for value in wrong:
        with pytest.raises(TypeError, match=name):
            call(**{name: value})


@pytest.mark.parametrize(("call", "name"), [c for c in CASES if c[1] in WORDS])
def test_words(call, name):
    for value in (1, ["bshd"], {}, np.zeros(2), b"bshd"):
        with pytest.raises(TypeError, match=name):
            call(**{name: value})
    with pytest.raises(ValueError, match=name):
        call(**{name: "other"})


def test_layout_and_stream_of_plans():
    plan = planned(seqlen_kv=9, dtype="float16")
    q, k = (np.ones((1, 9, heads, 64), np.float16) for heads in (4, 2))
    for name, wrong in (("layout", ["bshd"]), ("layout", 3), ("stream", "0"), ("stream", True)):
        with pytest.raises(TypeError, match=name):
            plan.run(q, k, k, **{name: wrong})
    for wrong in ("0", True, 1.0):
        # Not a TypeError, by which consumers know producers that lack a keyword.
        with pytest.raises(ValueError, match="stream"):
            amdattn.empty(3).__dlpack__(stream=wrong)


def test_a_str_of_numpy_is_one():
    assert _same(dense(layout=np.str_("bshd"), round_mode=np.str_("rtz")), dense(round_mode="rtz"))


@pytest.mark.parametrize("call", [dense, kvpacked, varlen, planned])
def test_windows(call):
    right = Tensor(0)
    for value in (0, 3, -1):
        right.value = value
        expected = call(window_size=(2, value))
        assert _same(call(window_size=(2, right)), expected)
        assert _same(call(window_size=[2, np.int64(value)]), expected)
        assert _same(call(window_size=np.array([2, value])), expected)
    for wrong in (4, (1,), (1, 2, 3), (1.0, 0), (True, False), ("1", 0), "10", Tensor(1), None):
        with pytest.raises(TypeError, match="window_size"):
            call(window_size=wrong)


def test_equal_values_of_other_types_are_not_looked_up_as_one():
    dense(softcap=1, num_splits=1, window_size=(1, 0))
    for options in ({"softcap": True}, {"num_splits": True}, {"window_size": (True, False)}):
        with pytest.raises(TypeError, match=next(iter(options))):
            dense(**options)


def test_tools():
    for call, name in (
        (lambda x: amdattn.testing.do_bench(lambda: None, warmup=x), "warmup"),
        (lambda x: amdattn.testing.do_bench(lambda: None, rep=x), "rep"),
        (lambda x: amdattn.testing.do_bench(lambda: None, quantiles=[x]), "quantiles"),
        (lambda x: amdattn.virtual.set_option("seed", x), "seed"),
        (lambda x: amdattn.virtual.check(max_errors=x), "max_errors"),
        (lambda x: amdattn.virtual.check(late_loads=x), "late_loads"),
        (lambda x: amdattn.virtual.profile(clock_mhz=x), "clock_mhz"),
        (lambda x: amdattn.virtual.profile(warm_code=x), "warm_code"),
        (lambda x: amdattn.DeviceProps("gfx942", "a", x, 8, 65536, 2**30), "num_cus"),
        (lambda x: amdattn.empty(4).record_stream(x), "stream"),
        (lambda x: amdattn.testing.attention(*qkv(*[(1, 2, 1, 8)] * 3), x), "softmax_scale"),
    ):
        for wrong in ("1", [1], np.ones(2)):
            with pytest.raises(TypeError, match=name):
                call(wrong)


def test_huge_numbers():
    with pytest.raises(ValueError, match=r"softmax_scale=.* must be finite"):
        scalars.number("softmax_scale", 10**400)
