"""Devices of several processes are one mesh, as on several hosts; here without a network."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from tests.support.paths import ROOT

_PROGRAM = """
import sys
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

process, port = map(int, sys.argv[1:])
jax.distributed.initialize(f"localhost:{port}", num_processes=2, process_id=process)
import amdattn.jax as aj

assert jax.process_count() == 2 and len(jax.devices()) == 8 and jax.local_device_count() == 4
mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("node", "gpu"))
rows = P(None, ("node", "gpu"))
rng = np.random.default_rng(0)
qkv = [rng.standard_normal((1, 8 * 16, heads, 64), np.float32) for heads in (8, 4, 4)]
q, k, v = (jnp.asarray(x, jnp.bfloat16) for x in qkv)
mine = slice(64 * process, 64 * (process + 1))
sharding = NamedSharding(mesh, rows)
shards = [
    jax.make_array_from_process_local_data(sharding, np.asarray(x)[:, mine]) for x in (q, k, v)
]
for options in ({"causal": True}, {"window_size": (40, 3)}):
    expected = np.asarray(aj.flash_attn_func(q, k, v, **options), np.float32)
    for method in ("ring", "all_gather", "ulysses"):
        def attention(q, k, v):
            return aj.context_parallel_attention(q, k, v, ("node", "gpu"), method, **options)

        function = jax.shard_map(attention, mesh=mesh, in_specs=rows, out_specs=rows)
        out = jax.jit(function)(*shards)
        for shard in out.addressable_shards:
            found = np.asarray(shard.data, np.float32)
            error = np.abs(found - expected[shard.index]).max()
            assert error <= 3 * 2.0**-8 * np.abs(qkv[2]).max(), (method, options, error)
        print("equal", method, options, flush=True)
"""


@pytest.mark.slow
def test_equals_one_device() -> None:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
    }
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(process), str(port)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for process in (0, 1)
    ]
    try:
        texts = [process.communicate(timeout=500)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, text in zip(processes, texts, strict=True):
        assert process.returncode == 0 and text.count("equal") == 6, text
