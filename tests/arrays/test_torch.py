"""torch tensors go in and come back, without this package importing torch."""

import numpy as np
import pytest

import amdattn

torch = pytest.importorskip("torch")


@pytest.fixture
def tensors():
    generator = torch.Generator().manual_seed(4)
    shapes = ((1, 9, 2, 64), (1, 40, 2, 64), (1, 40, 2, 64))
    return [torch.randn(shape, generator=generator).to(torch.bfloat16) for shape in shapes]


def reference(q, k, v, scale):
    x, y, z = (t.float().transpose(1, 2) for t in (q, k, v))
    return (torch.softmax(x @ y.transpose(2, 3) * scale, -1) @ z).transpose(1, 2)


def test_tensors_go_in_and_come_back(tensors):
    for order in ("contiguous", "columns"):
        given = tensors
        if order == "columns":
            given = [t.transpose(1, 3).contiguous().transpose(1, 3) for t in tensors]
        out = amdattn.flash_attn_func(*given)
        assert isinstance(out, torch.Tensor) and out.dtype == torch.bfloat16
        torch.testing.assert_close(out.float(), reference(*tensors, 0.125), atol=0.02, rtol=0.02)


def test_scalars_that_are_tensors(tensors):
    scale = torch.tensor(0.1)
    first = amdattn.flash_attn_func(*tensors, softmax_scale=scale)
    scale.fill_(1.5)
    second = amdattn.flash_attn_func(*tensors, softmax_scale=scale)
    assert not torch.equal(first, second)
    torch.testing.assert_close(second.float(), reference(*tensors, 1.5), atol=0.03, rtol=0.03)
    with pytest.raises(TypeError, match="softmax_scale has shape"):
        amdattn.flash_attn_func(*tensors, softmax_scale=torch.ones(1))
    with pytest.raises(TypeError, match="num_splits"):
        amdattn.flash_attn_func(*tensors, num_splits=torch.tensor(2.0))
    for longest in (torch.tensor(20), 20):
        x = tensors[1][0]
        sums = torch.tensor([0, 20, 40])  # int64, as torch makes them
        out = amdattn.flash_attn_varlen_func(x, x, x, sums, sums, longest, longest)
        assert out.shape == x.shape


def test_parameters_under_no_grad(tensors):
    q = torch.nn.Parameter(tensors[0])
    with pytest.raises(ValueError, match=r"q requires a gradient.*no_grad"):
        amdattn.flash_attn_func(q, *tensors[1:])
    expected = amdattn.flash_attn_func(*tensors)
    for quiet in (torch.no_grad(), torch.inference_mode()):
        with quiet:
            assert torch.equal(amdattn.flash_attn_func(q, *tensors[1:]), expected)


def test_types_and_empty_tensors(tensors):
    product = amdattn.gemm_nt(tensors[0][0, 0], tensors[1][0, :, 0], out_dtype=torch.float32)
    assert product.dtype == torch.float32 and product.shape == (2, 40)
    assert amdattn.flash_attn_func(*(t[:0] for t in tensors)).shape == (0, 9, 2, 64)
    x = torch.from_numpy(np.zeros((1, 3, 2, 64), np.complex64))
    with pytest.raises(ValueError, match=r"q .*code=5"):
        amdattn.flash_attn_func(x, x, x)
    with pytest.raises((TypeError, ValueError, BufferError), match="q "):
        amdattn.flash_attn_func(tensors[0].to("meta"), *tensors[1:])
