"""The squared error of relaxed rows differentiated by JAX: optional, loaded only on use."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from dpsql.algebra.operator import Floats
from dpsql.errors import OperationalError
from dpsql.learn.targets import Targets


def jax_gradient(targets: Targets, x: Floats) -> tuple[float, Floats]:
    """Return what ``Targets.value_and_gradient`` returns, by automatic differentiation.

    Raises OperationalError E_BACKEND without JAX.
    """
    try:
        jax: Any = import_module("jax")
        jnp: Any = import_module("jax.numpy")
    except ImportError:
        raise OperationalError(
            "E_BACKEND",
            "gradients were asked of JAX, and JAX is not installed",
            hint="leave the setting out: the built-in gradients are the same",
        ) from None
    jax.config.update("jax_enable_x64", True)

    def loss(table: Any) -> Any:
        error = _shares(jnp, targets, table) - targets.values
        return jnp.sum(targets.weights * error**2)

    value, gradient = jax.jit(jax.value_and_grad(loss))(jnp.asarray(x))
    return float(value), np.asarray(gradient)


def _shares(jnp: Any, targets: Targets, x: Any) -> Any:
    count = x.shape[0]
    out = jnp.zeros(targets.values.size)
    for start, parts in targets.blocks:
        for part in parts:
            operands: list[Any] = []
            for axis, table in enumerate(part.tables(x)):
                operands += [table, [0, axis + 1]]
            tensor = jnp.einsum(*operands, list(range(1, len(part.order) + 1))) / count
            flat = tensor.transpose(np.argsort(part.order)).reshape(-1)
            out = out.at[start : start + flat.size].add(flat)
    for batch, owners in targets.batches:
        if not len(batch.slots):
            out = out.at[owners].add(1.0)
            continue
        pairs = zip(batch.columns, batch.vectors, strict=True)
        values = jnp.concatenate([vectors @ x[:, columns].T for columns, vectors in pairs])
        product = values[batch.slots[0]]
        for slot in batch.slots[1:]:
            product = product * values[slot]
        out = out.at[owners].add(product.sum(axis=1) / count)
    for diagrams, places in targets.patterns:
        pairs = zip(diagrams.columns, diagrams.vectors, strict=True)
        classes = [vectors @ x[:, columns].T for columns, vectors in pairs]
        chances = jnp.concatenate([*classes, jnp.ones((1, count))])
        states = jnp.ones((diagrams.count, count))
        for source, chosen, target, width in diagrams.levels:
            moved = states[source] * chances[chosen]
            states = jnp.zeros((width, count)).at[target].add(moved)
        out = out.at[places].set(states.mean(axis=1))
    return out
