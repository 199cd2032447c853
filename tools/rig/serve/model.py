# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Whether a model's folder can be served as wanted, before anything is started."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tools.rig.base.errors import CannotError, quoted
from tools.rig.serve import model_names, quantisation, shapes, weights
from tools.rig.serve.folder import ModelFolder, read
from tools.rig.serve.headers import Tensor
from tools.rig.serve.problem import Problem
from tools.rig.serve.shapes import Attention, Shape

__all__ = ["ModelFolder", "Problem", "checks", "read"]

_FLOATS = ("F32", "F16", "BF16")


def checks(
    model: ModelFolder,
    tensor: int = 1,
    pipeline: int = 1,
    *,
    sm: int = 70,
    env: Mapping[str, str] | None = None,
) -> list[Problem]:
    """Return everything that is wrong with serving a model on so many cards.

    Parameters
    ----------
    model
        What :func:`read` found; its own problems come first.
    tensor, pipeline
        Ranks of either kind of parallelism.
    sm
        Compute capability of the cards as a number: what Volta cannot do is a problem
        for 70 alone.
    env
        The variables that the server gets.
    """
    found = list(model.problems)
    if not model.config:
        return found
    found += model_names.problems(model.config, model.path / "config.json")
    try:
        shape = shapes.read(model.config)
    except CannotError as exc:
        look = f"cat {quoted(model.path / 'config.json')}"
        return [*found, Problem(exc.what, exc.hint or look)]
    found += _heads(shape, tensor)
    found += _sizes(model, shape)
    if pipeline > len(shape.layers):
        found.append(
            Problem(
                f"{len(shape.layers)} layers cannot be shared by {pipeline} stages",
                f"--pp {len(shape.layers)} or fewer",
            )
        )
    if sm == 70 and model.quantisation:
        found += _quantised(model, env or {})
    if model.config.get("auto_map"):
        found.append(
            Problem(
                "the model brings code of its own, which runs only with "
                "--trust-remote-code; vLLM's own class needs none of it",
                f"ls {quoted(model.path)}/*.py",
                "note",
            )
        )
    return found


def _heads(shape: Shape, tensor: int) -> Iterator[Problem]:
    if tensor < 2:
        return
    most = [n for n in range(1, shape.heads + 1) if shape.heads % n == 0]
    if shape.heads % tensor:
        yield Problem(
            f"{shape.heads} attention heads cannot be divided by --tp {tensor}",
            f"one of --tp {', '.join(map(str, most[:6]))}",
        )
        return
    attends = any(isinstance(c, Attention) and not c.is_mla for c in shape.caches)
    kv = shape.kv_heads
    if attends and kv >= tensor and kv % tensor:
        yield Problem(
            f"{kv} key and value heads cannot be divided by --tp {tensor}",
            f"one of --tp {', '.join(str(n) for n in most if kv % n == 0)}",
        )
    elif attends and kv < tensor and tensor % kv:
        yield Problem(
            f"--tp {tensor} is no multiple of the {kv} key and value heads, which "
            "have to be copied to all cards",
            f"--tp {kv}",
        )
    elif attends and kv < tensor:
        yield Problem(
            f"each of the {kv} key and value heads is held by {tensor // kv} cards: "
            "their KV cache is not divided further",
            level="note",
        )
    if shape.vocab % tensor:
        padded = -(-shape.vocab // weights.PADDING) * weights.PADDING
        yield Problem(
            f"the vocabulary of {shape.vocab} is padded to {padded} to be divided",
            level="note",
        )


def _sizes(model: ModelFolder, shape: Shape) -> Iterator[Problem]:
    """Compare config.json with the tensors: a wrong number fails after minutes."""
    file = model.path / "config.json"
    hint = f"cat {quoted(file)}"
    lost = _layers_lost(model, shape)
    if lost:
        yield Problem(f"{file} says {len(shape.layers)} layers, but {lost}", hint)
    for name, tensor in model.tensors.items():
        if name.endswith("embed_tokens.weight") and tensor.dtype in _FLOATS:
            own = "visual" not in name and "audio" not in name
            per_layer = "per_layer" in name
            if own and not per_layer and tensor.shape and tensor.shape[0] < shape.vocab:
                yield Problem(
                    f"{file} says a vocabulary of {shape.vocab}, but {name} has "
                    f"{tensor.shape[0]} rows",
                    hint,
                )
    for at, layer in enumerate(shape.layers):
        plain = [c for c in layer if isinstance(c, Attention) and not c.is_mla]
        key = _one(model, f"layers.{at}.self_attn.k_proj.weight")
        if plain and key is not None and key.shape[0] != plain[0].heads * plain[0].key:
            yield Problem(
                f"{file} says {plain[0].heads} key heads of {plain[0].key}, but "
                f"{key.name} has {key.shape[0]} rows, not "
                f"{plain[0].heads * plain[0].key}",
                hint,
            )
            return
        query = _one(model, f"layers.{at}.self_attn.q_proj.weight")
        # with a gate on the output there are twice as many rows
        rows = shape.heads * plain[0].key if plain else 0
        if rows and query is not None and query.shape[0] not in (rows, 2 * rows):
            yield Problem(
                f"{file} says {shape.heads} heads of {plain[0].key}, but "
                f"{query.name} has {query.shape[0]} rows, not {rows}",
                hint,
            )
            return


def _layers_lost(model: ModelFolder, shape: Shape) -> str:
    if model.errors or not model.tensors:
        return ""
    seen = weights.layers_of(model.tensors)
    missing = [at for at in range(len(shape.layers)) if at not in seen]
    if seen and missing:
        return f"no tensor belongs to layer {missing[0]}"
    return ""


def _one(model: ModelFolder, end: str) -> Tensor | None:
    for start in ("model.", "model.language_model.", "language_model.model.", ""):
        found = model.tensors.get(start + end)
        if found is not None and found.dtype in _FLOATS and len(found.shape) == 2:
            return found
    return None


def _quantised(model: ModelFolder, env: Mapping[str, str]) -> Iterator[Problem]:
    verdict = quantisation.on_sm70(model.quantisation, env)
    if verdict.ok:
        return
    hint = verdict.hint or "choose an AWQ version of the model"
    if verdict.ok is None:
        yield Problem(
            f"whether a V100 can run it is not known: {verdict.why}", hint, "unknown"
        )
        return
    yield Problem(
        f"a V100 cannot run it: {verdict.why} ({verdict.where} in the fork)", hint
    )
