"""What the functions make of JAX arrays where JAX has 8 devices; prints it as JSON.

Run as a program: JAX counts its devices once in a process.
"""

import json
import os
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import amdattn

FATES = ("shards", "replicas", "deleted", "donated", "jit", "vmap", "grad", "remat")


def arguments():
    """The arrays of a call of every function, by function and by argument."""
    x = jnp.ones((8, 4, 1, 64), jnp.bfloat16)
    rows = jnp.ones((8, 1, 64), jnp.bfloat16)
    sums = jnp.arange(0, 9, dtype=jnp.int32)
    line = jnp.ones((8,), jnp.bfloat16)
    varlen = {"cu_seqlens_q": sums, "cu_seqlens_k": sums}
    return {
        "flash_attn_func": {"q": x, "k": x, "v": x, "sinks": jnp.ones((1,))},
        "flash_attn_kvpacked_func": {"q": x, "kv": jnp.stack([x, x], 2)},
        "flash_attn_qkvpacked_func": {"qkv": jnp.stack([x, x, x], 2)},
        "flash_attn_varlen_func": {"q": rows, "k": rows, "v": rows, **varlen},
        "gemm_nt": {"a": rows[:, 0], "b": rows[:, 0], "bias": line},
        "rms_norm": {"x": rows[:, 0], "weight": rows[0, 0], "residual": rows[:, 0]},
        "asarray": {"x": x},
        "from_dlpack": {"x": x},
    }


NUMBERS = {"flash_attn_varlen_func": {"max_seqlen_q": 1, "max_seqlen_k": 1}}


def called(name, arrays):
    function = getattr(amdattn, name)
    if name == "from_dlpack":
        return function(arrays["x"], device=0)
    return function(**arrays, **NUMBERS.get(name, {}))


def answer(name, arrays, argument, fate):
    """The error of a call of which one argument met a fate; None: there was none."""
    given = arrays[argument]

    def with_one(value):
        return called(name, {**arrays, argument: value})

    mesh = Mesh(np.array(jax.devices()), ("d",))
    try:
        if fate == "shards":
            axes = next(i for i, length in enumerate(given.shape) if length % 8 == 0)
            split = PartitionSpec(*[None] * axes, "d")
            with_one(jax.device_put(given, NamedSharding(mesh, split)))
        elif fate == "replicas":
            with_one(jax.device_put(given, NamedSharding(mesh, PartitionSpec())))
        elif fate == "deleted":
            gone = given + 0
            gone.delete()
            with_one(gone)
        elif fate == "donated":
            gone = given + 0
            jax.block_until_ready(jax.jit(lambda y: y + 1, donate_argnums=0)(gone))
            with_one(gone)
        elif fate == "jit":
            jax.jit(with_one)(given)
        elif fate == "vmap":
            jax.vmap(with_one)(given[None])
        elif fate == "grad":
            jax.jvp(with_one, (given,), (given,))
        elif fate == "remat":
            jax.eval_shape(jax.checkpoint(with_one), given)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def refusals():
    """By function, argument and fate: what a call says. Arrays of integers have no gradient."""
    found = {}
    for name, arrays in arguments().items():
        for argument, given in arrays.items():
            for fate in FATES:
                has_shards = any(length % 8 == 0 for length in given.shape)
                is_real = jnp.issubdtype(given.dtype, jnp.floating)
                if (fate != "shards" or has_shards) and (fate != "grad" or is_real):
                    found[f"{name} {argument} {fate}"] = answer(name, arrays, argument, fate)
    return found


def places():
    """By function and device of the inputs: where the results are, and whether they must stay."""
    found = {}
    for name, arrays in arguments().items():
        if name in ("asarray", "from_dlpack"):
            continue
        for number in (None, 0, 3, 7):
            here = arrays
            if number is not None:
                device = jax.devices()[number]
                here = {key: jax.device_put(value, device) for key, value in arrays.items()}
            results = jax.tree.leaves(called(name, here))
            found[f"{name} {number}"] = [
                [sorted(device.id for device in made.devices()), made.committed] for made in results
            ]
    return found


def is_usable():
    """Results of arrays that are on no device in particular go into calls on any."""
    x = jnp.ones((1, 4, 1, 64), jnp.bfloat16)
    out = amdattn.flash_attn_func(x, x, x)
    elsewhere = jax.device_put(jnp.ones((), jnp.bfloat16), jax.devices()[5])
    return {device.id for device in (out + elsewhere).devices()} == {5}


if __name__ == "__main__":
    json.dump({"refusals": refusals(), "places": places(), "is_usable": is_usable()}, sys.stdout)
