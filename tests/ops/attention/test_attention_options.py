"""Masks, sinks, splits, sequences of several lengths and packed arrays, against float64."""

import dataclasses
import threading

import ml_dtypes
import numpy as np
import pytest

import amdattn
from amdattn.device import runtime
from amdattn.ops.attention import select
from tests.support.attention.masked import attention, varlen
from tests.support.shipped import shipped

BF16 = ml_dtypes.bfloat16


def built(**wanted):
    """Whether some shipped kernel has all of these values among its constraints."""
    return any(
        all(
            row.accepts[name] == "any" or value in row.accepts[name]
            for name, value in wanted.items()
        )
        for row in shipped(select.ATTENTION)
    )


def check(got, expected, tolerance=0.01):
    out, lse = got
    expected_out, expected_lse = expected
    out = np.asarray(out).astype(np.float64)
    assert out.shape == expected_out.shape
    np.testing.assert_allclose(out, expected_out, atol=tolerance, rtol=0.01)
    np.testing.assert_allclose(np.asarray(lse), expected_lse, atol=2e-3, rtol=1e-5)


@pytest.mark.parametrize(
    "masking",
    [
        {"causal": True},
        {"causal": True, "top_left": True},
        {"window_size": (20, 0)},
        {"window_size": (100, 30)},
        {"window_size": (0, 0)},
        {"window_size": (-1, 17)},
        {"window_size": (33, -1), "top_left": True},
        {"causal": True, "window_size": (40, 99)},
    ],
    ids=str,
)
@pytest.mark.parametrize("lengths", [(70, 131), (131, 70), (1, 65)], ids=str)
def test_masks(normal, masking, lengths):
    rows, keys = lengths
    q, k, v = normal(1, rows, 2, 128), normal(1, keys, 1, 128), normal(1, keys, 1, 128)
    got = amdattn.flash_attn_func(q, k, v, return_lse=True, **masking)
    check(got, attention(q, k, v, **masking))


def test_masks_of_many_tiles(normal):
    """Several tiles of several heads in the order that masks have."""
    q, k, v = normal(2, 800, 5, 128), normal(2, 500, 5, 128), normal(2, 500, 5, 128)
    got = amdattn.flash_attn_func(q, k, v, causal=True, return_lse=True)
    check(got, attention(q, k, v, causal=True))


@pytest.mark.parametrize("scale", [-0.25, 0.0, 1e-6, 3.0])
@pytest.mark.parametrize("num_splits", [1, 3])
@pytest.mark.parametrize("masking", [{"causal": True}, {"window_size": (20, 10)}], ids=str)
def test_scales(normal, scale, num_splits, masking):
    """Also where rows see none of the first keys, and some rows none at all."""
    q, k, v = normal(1, 300, 1, 128), normal(1, 200, 1, 128), normal(1, 200, 1, 128)
    got = amdattn.flash_attn_func(
        q, k, v, softmax_scale=scale, num_splits=num_splits, return_lse=True, **masking
    )
    check(got, attention(q, k, v, scale, **masking))


@pytest.mark.parametrize("masking", [{}, {"causal": True}], ids=str)
@pytest.mark.parametrize("num_splits", [1, 2])
def test_sinks(normal, masking, num_splits):
    q, k, v = normal(1, 60, 4, 128), normal(1, 40, 2, 128), normal(1, 40, 2, 128)
    sinks = np.array([-3.0, 0.0, 2.5, 40.0], np.float32)
    got = amdattn.flash_attn_func(
        q, k, v, sinks=sinks, return_lse=True, num_splits=num_splits, **masking
    )
    check(got, attention(q, k, v, sinks=sinks, **masking))


@pytest.mark.parametrize("num_splits", [2, 3, 16])
@pytest.mark.parametrize("masking", [{}, {"causal": True}, {"window_size": (50, 10)}], ids=str)
def test_splits(normal, num_splits, masking):
    """More parts than blocks, too."""
    q, k, v = normal(1, 390, 2, 128), normal(1, 200, 1, 128), normal(1, 200, 1, 128)
    got = amdattn.flash_attn_func(
        q, k, v, num_splits=num_splits, return_lse=True, causal="causal" in masking,
        window_size=masking.get("window_size", (-1, -1)),
    )  # fmt: skip
    check(got, attention(q, k, v, **masking))


def test_planned_splits(normal):
    """Few tiles and a long KV range: the plan splits by itself, and says so."""
    q, k, v = normal(1, 10, 2, 128), normal(1, 2500, 1, 128), normal(1, 2500, 1, 128)
    plan = amdattn.plan_attention(
        1, 10, 2500, 2, 1, 128, causal=True, device=amdattn.device_props()
    )
    assert len(plan.launches) == 2
    assert "the last 2 of 2 tiles in" in dict(plan.reasons)["KV split"]
    got = amdattn.flash_attn_func(q, k, v, causal=True, return_lse=True)
    check(got, attention(q, k, v, causal=True))


@pytest.mark.parametrize("masking", [{}, {"causal": True}, {"window_size": (1500, 40)}], ids=str)
@pytest.mark.parametrize("num_cus", [4, 8])
def test_some_tiles_whole_and_some_in_parts(normal, num_cus, masking):
    """As on a device with few CUs: the plan splits the tiles of the last round."""
    q, k, v = normal(1, 1100, 2, 192), normal(1, 2500, 2, 192), normal(1, 2500, 2, 128)
    props = dataclasses.replace(amdattn.device_props(), num_cus=num_cus, num_xcds=2)
    plan = amdattn.plan_attention(
        1, 1100, 2500, 2, 2, 192, head_dim_v=128, return_lse=True, device=props, **masking
    )  # fmt: skip
    work = dict(plan.launches[0].args)
    assert work["parts"] > 1 and 0 < work["whole_tiles"] < 10
    check(plan.run(q, k, v), attention(q, k, v, **masking))


def test_forced_splits_do_not_depend_on_the_batch(normal):
    q, k, v = normal(3, 33, 2, 128), normal(3, 150, 2, 128), normal(3, 150, 2, 128)
    together = amdattn.flash_attn_func(q, k, v, num_splits=2)
    for i in range(3):
        alone = amdattn.flash_attn_func(*(x[i : i + 1] for x in (q, k, v)), num_splits=2)
        np.testing.assert_array_equal(alone.view(np.uint16), together[i : i + 1].view(np.uint16))


@pytest.mark.parametrize(
    ("dtype", "head_dim", "head_dim_v", "round_mode"),
    [
        ("bfloat16", 128, 128, "rtna"),
        ("bfloat16", 128, 128, "rtz"),
        ("float16", 128, 128, "rtne"),
        ("bfloat16", 64, 64, "rtne"),
        ("float16", 64, 64, "rtne"),
        ("bfloat16", 192, 128, "rtne"),
        ("bfloat16", 192, 128, "rtz"),
        ("float16", 192, 128, "rtne"),
    ],
)
@pytest.mark.parametrize("num_splits", [1, 2])
def test_members_of_the_family(normal, dtype, head_dim, head_dim_v, round_mode, num_splits):
    answer = amdattn.supports(
        *(1, 90, 77, 2, 1, head_dim),
        head_dim_v=head_dim_v,
        dtype=dtype,
        round_mode=round_mode,
        device=amdattn.device_props(),
    )
    if not answer:
        pytest.skip(answer.reason)
    element = BF16 if dtype == "bfloat16" else np.float16
    shapes = (1, 90, 2, head_dim), (1, 77, 1, head_dim), (1, 77, 1, head_dim_v)
    q, k, v = (normal(*shape).astype(element) for shape in shapes)
    got = amdattn.flash_attn_func(
        q, k, v, causal=True, round_mode=round_mode, num_splits=num_splits, return_lse=True
    )
    assert got[0].dtype == element
    check(got, attention(q, k, v, causal=True), 0.02 if round_mode == "rtz" else 0.01)


# -- sequences of several lengths ------------------------------------------------------------------

Q_LENGTHS, KV_LENGTHS = (40, 0, 1, 400, 33), (64, 20, 0, 100, 33)


def sums(lengths):
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


@pytest.fixture
def ragged(normal):
    cu_q, cu_k = sums(Q_LENGTHS), sums(KV_LENGTHS)
    q, k, v = normal(cu_q[-1], 2, 128), normal(cu_k[-1], 1, 128), normal(cu_k[-1], 1, 128)
    return q, k, v, cu_q, cu_k


@pytest.mark.parametrize("num_splits", [0, 1, 2])
@pytest.mark.parametrize("masking", [{}, {"causal": True}, {"window_size": (30, 5)}], ids=str)
def test_sequences_of_several_lengths(ragged, masking, num_splits):
    q, k, v, cu_q, cu_k = ragged
    got = amdattn.flash_attn_varlen_func(
        *(q, k, v, cu_q, cu_k, max(Q_LENGTHS), max(KV_LENGTHS)),
        return_lse=True,
        num_splits=num_splits,
        **masking,
    )
    check(got, varlen(q, k, v, cu_q, cu_k, **masking))


def test_sequences_of_several_lengths_on_the_device(ragged):
    q, k, v, cu_q, cu_k = ragged
    sinks = np.array([1.0, -2.0], np.float32)
    device = [amdattn.asarray(x) for x in ragged]
    out, lse = amdattn.empty(q.shape), amdattn.empty((2, len(q)), "float32")
    got = amdattn.flash_attn_varlen_func(
        *(*device, max(Q_LENGTHS) + 100, max(KV_LENGTHS)),
        sinks=amdattn.asarray(sinks),
        out=out,
        lse=lse,
    )
    assert got == (out, lse)
    check((out.numpy(), lse.numpy()), varlen(q, k, v, cu_q, cu_k, sinks=sinks))


def test_a_plan_of_several_lengths(ragged):
    """The same plan for other lengths with the same sums."""
    q, k, v, cu_q, cu_k = ragged
    plan = amdattn.plan_attention(
        *(len(Q_LENGTHS), max(Q_LENGTHS), max(KV_LENGTHS), 2, 1, 128),
        total_q=len(q),
        total_kv=len(k),
        return_lse=True,
        device=amdattn.device_props(),
    )
    for lengths in ((0, 1, 2, 3), (4, 3, 2, 1, 0)):
        order = (*lengths, *({*range(5)} - {*lengths}))
        cu_q, cu_k = (sums([x[i] for i in order]) for x in (Q_LENGTHS, KV_LENGTHS))
        got = plan.run(q, k, v, cu_seqlens_q=cu_q, cu_seqlens_k=cu_k)
        check(got, varlen(q, k, v, cu_q, cu_k))


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"cu_seqlens_q": sums((40, 300, 134))}, ValueError, "cu_seqlens_k has shape"),
        ({"cu_seqlens_q": sums(Q_LENGTHS).astype("f8")}, ValueError, "cu_seqlens_q.*int32"),
        ({"cu_seqlens_q": np.int32([[0, 1]])}, ValueError, r"cu_seqlens_q has shape \(1, 2\)"),
        ({"cu_seqlens_q": np.int32([1, 40, 41, 42, 43, 44])}, ValueError, "begin with 0"),
        ({"cu_seqlens_k": np.int32([0, 9, 8, 10, 11, 12])}, ValueError, "never fall"),
        ({"cu_seqlens_k": np.int32([0, 9, 10, 11, 12, 999])}, ValueError, "at most 217"),
        ({"max_seqlen_q": 399}, ValueError, "cu_seqlens_q has a sequence of 400 rows.*399"),
        ({"max_seqlen_k": 0}, ValueError, "cu_seqlens_k has a sequence"),
        ({"max_seqlen_k": -1}, ValueError, "max_seqlen_k=-1"),
        ({"max_seqlen_k": None}, TypeError, "max_seqlen_k=None"),
        ({"block_table": np.zeros(3)}, ValueError, r"block_table has shape \(3,\)"),
        ({"alibi_slopes": np.zeros(3)}, NotImplementedError, "alibi_slopes is not built"),
        ({"q": np.zeros((1, 3, 2, 128), BF16)}, ValueError, "must have 3 dimensions"),
        ({"deterministic": 1}, TypeError, "deterministic=1 must be a bool"),
        ({"return_attn_probs": None}, TypeError, "return_attn_probs=None must be a bool"),
        ({"sinks": np.zeros(3, np.float32)}, ValueError, r"sinks has shape \(3,\)"),
        ({"sinks": np.zeros(2)}, ValueError, "sinks has dtype float64"),
    ],
)
def test_malformed_lengths(ragged, launches, change, error, text):
    names = ("q", "k", "v", "cu_seqlens_q", "cu_seqlens_k")
    arguments = dict(zip(names, ragged, strict=True))
    arguments |= {"max_seqlen_q": max(Q_LENGTHS), "max_seqlen_k": max(KV_LENGTHS)}
    with pytest.raises(error, match=text):
        amdattn.flash_attn_varlen_func(**{**arguments, **change})
    assert launches == []


def test_layouts_do_not_name_sequences_of_several_lengths(normal):
    x = normal(8, 1, 128)
    with pytest.raises(ValueError, match=r"layout='thd' must be one of \('bshd', 'bhsd'\)"):
        amdattn.flash_attn_func(x, x, x, layout="thd")


# -- packed arrays ---------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [np.asarray, amdattn.asarray], ids=["host", "device"])
def test_packed(normal, place):
    qkv = normal(2, 50, 3, 2, 128)
    q, k, v = (qkv[:, :, i] for i in range(3))
    expected = attention(q, k, v, causal=True)
    out, lse, probs = amdattn.flash_attn_qkvpacked_func(
        place(qkv), causal=True, return_attn_probs=True
    )
    assert probs is None and type(out) is type(place(qkv))
    to_host = np.asarray if place is np.asarray else amdattn.DeviceArray.numpy
    check((to_host(out), to_host(lse)), expected)
    out, lse = amdattn.flash_attn_kvpacked_func(
        place(np.ascontiguousarray(q)), place(qkv[:, :, 1:]), causal=True, return_lse=True
    )
    check((to_host(out), to_host(lse)), expected)


@pytest.mark.parametrize("place", [np.asarray, amdattn.asarray], ids=["host", "device"])
def test_packed_sequences_of_several_lengths(normal, place):
    cu = sums(Q_LENGTHS)
    qkv = normal(cu[-1], 3, 2, 128)
    q, k, v = (qkv[:, i] for i in range(3))
    expected = varlen(q, k, v, cu, cu)
    to_host = np.asarray if place is np.asarray else amdattn.DeviceArray.numpy
    got = amdattn.flash_attn_varlen_qkvpacked_func(
        place(qkv), place(cu), max(Q_LENGTHS), return_lse=True
    )
    check(map(to_host, got), expected)
    got = amdattn.flash_attn_varlen_kvpacked_func(
        *(place(np.ascontiguousarray(q)), place(qkv[:, 1:]), place(cu), place(cu)),
        *(max(Q_LENGTHS), max(Q_LENGTHS)),
        return_lse=True,
    )
    check(map(to_host, got), expected)


def test_packed_arrays_are_not_copied(normal, allocations):
    qkv = amdattn.asarray(normal(1, 40, 3, 1, 128))
    out = amdattn.empty((1, 40, 1, 128))
    allocations.clear()
    assert amdattn.flash_attn_qkvpacked_func(qkv, num_splits=1, out=out) is out
    assert allocations == []


@pytest.mark.parametrize("shape", [(1, 5, 2, 1, 128), (1, 5, 3, 128), (5, 3, 1, 128)])
def test_malformed_packed(normal, launches, shape):
    with pytest.raises(ValueError, match=r"qkv has shape .*\(batch, seqlen, 3, num_heads"):
        amdattn.flash_attn_qkvpacked_func(normal(*shape))
    assert launches == []


# -- results and workspaces ------------------------------------------------------------------------


def test_positional_arguments_are_flash_attentions(normal):
    q, k, v = normal(1, 20, 1, 128), normal(1, 30, 1, 128), normal(1, 30, 1, 128)
    out, lse, probs = amdattn.flash_attn_func(
        q, k, v, 0.0, 0.25, True, (12, -1), 0.0, None, True, True
    )
    assert probs is None
    check((out, lse), attention(q, k, v, 0.25, causal=True, window_size=(12, -1)))


def test_lse_with_gaps(normal):
    q, k, v = normal(2, 20, 2, 128), normal(2, 30, 1, 128), normal(2, 30, 1, 128)
    wide = amdattn.empty((2, 4, 32), "float32")
    lse = wide[:, ::2, 3:23]
    out, same = amdattn.flash_attn_func(*map(amdattn.asarray, (q, k, v)), causal=True, lse=lse)
    assert same is lse
    check((out.numpy(), lse.numpy()), attention(q, k, v, causal=True))


def split_case(normal):
    q, k, v = normal(1, 20, 2, 128), normal(1, 100, 1, 128), normal(1, 100, 1, 128)
    plan = amdattn.plan_attention(
        1, 20, 100, 2, 1, 128, num_splits=3, return_lse=True, device=amdattn.device_props()
    )
    return plan, q, k, v


def test_with_a_workspace_nothing_is_allocated(normal, allocations, launches):
    plan, q, k, v = split_case(normal)
    dq, dk, dv = map(amdattn.asarray, (q, k, v))
    workspace = amdattn.empty(plan.workspace.total_bytes, "uint8")
    out, lse = amdattn.empty(q.shape), amdattn.empty((1, 2, 20), "float32")
    allocations.clear()
    for _ in range(3):
        assert plan.run(dq, dk, dv, out, lse=lse, workspace=workspace) == (out, lse)
    assert allocations == [] and len(launches) == 6
    check((out.numpy(), lse.numpy()), attention(q, k, v))


def test_runs_at_the_same_time_have_workspaces_of_their_own(normal):
    plan, _, k, v = split_case(normal)
    queries = [normal(1, 20, 2, 128) for _ in range(6)]
    device = runtime.get()
    streams = [device.check("hipStreamCreate", device.hip.hipStreamCreate()) for _ in queries]
    dk, dv = map(amdattn.asarray, (k, v))
    results = [None] * len(queries)

    def work(i):
        results[i] = plan.run(amdattn.asarray(queries[i]), dk, dv, stream=streams[i])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(queries))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for q, (out, lse) in zip(queries, results, strict=True):
        check((out.numpy(), lse.numpy()), attention(q, k, v))
    for stream in streams:
        device.check("hipStreamDestroy", device.hip.hipStreamDestroy(stream))


def test_bad_workspaces(normal, launches):
    plan, *arrays = split_case(normal)
    device = [amdattn.asarray(x) for x in arrays]
    nbytes = plan.workspace.total_bytes
    for workspace, text in (
        (amdattn.empty(nbytes - 1, "uint8"), f"workspace has {nbytes - 1} bytes.*needs {nbytes}"),
        (amdattn.empty(nbytes + 8, "uint8")[8:], "multiple of 16"),
        (amdattn.empty((nbytes, 2), "uint8")[:, 0], "without gaps"),
    ):
        with pytest.raises(ValueError, match=text):
            plan.run(*device, workspace=workspace)
    with pytest.raises(TypeError, match="workspace on the host"):
        plan.run(*device, workspace=np.zeros(nbytes, np.uint8))
    with pytest.raises(ValueError, match="sinks was given, but the plan has sinks=False"):
        plan.run(*device, sinks=amdattn.empty(2, "float32"))
    assert launches == []


def test_capture_needs_a_workspace(normal, hip_stream):
    plan, q, k, v = split_case(normal)
    device = runtime.get()
    hip, call = device.hip, device.check
    dq, dk, dv = map(amdattn.asarray, (q, k, v))
    out, lse = amdattn.empty(q.shape), amdattn.empty((1, 2, 20), "float32")
    workspace = amdattn.empty(plan.workspace.total_bytes, "uint8")
    plan.run(dq, dk, dv, out, lse=lse)  # loads the kernels: a capture must not
    amdattn.synchronize()
    out.stream = lse.stream = workspace.stream = None
    mode = hip.hipStreamCaptureMode.hipStreamCaptureModeGlobal
    call("hipStreamBeginCapture", hip.hipStreamBeginCapture(hip_stream, mode))
    with pytest.raises(ValueError, match="so pass workspace="):
        plan.run(dq, dk, dv, out, lse=lse, stream=hip_stream)
    plan.run(dq, dk, dv, out, lse=lse, workspace=workspace, stream=hip_stream)
    graph = call("hipStreamEndCapture", hip.hipStreamEndCapture(hip_stream))
    executable = call("hipGraphInstantiate", hip.hipGraphInstantiateWithFlags(graph, 0))
    q = normal(1, 20, 2, 128)
    device.upload(dq.address, q.ctypes.data, q.nbytes)
    amdattn.synchronize()
    call("hipGraphLaunch", hip.hipGraphLaunch(executable, hip_stream))
    check((out.numpy(), lse.numpy()), attention(q, k, v))
    call("hipGraphExecDestroy", hip.hipGraphExecDestroy(executable))
    call("hipGraphDestroy", hip.hipGraphDestroy(graph))


def test_strides_of_keys_that_the_loads_cannot_take(normal, launches):
    """On the device their rows are gathered first; on the host they are made compact."""
    q, k, v = normal(1, 20, 1, 128), normal(1, 30, 1, 128), normal(1, 30, 1, 128)
    got = amdattn.flash_attn_func(
        *(amdattn.asarray(q), amdattn.asarray(k)[:, ::-1], amdattn.asarray(v)),
        causal=True,
        return_lse=True,
    )
    check([x.numpy() for x in got], attention(q, k[:, ::-1], v, causal=True))
    assert len(launches) == 2
    got = amdattn.flash_attn_func(q, k[:, ::-1], v, causal=True, return_lse=True)
    check(got, attention(q, k[:, ::-1], v, causal=True))
