# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""From what people ask to the whole command of a server; pure, nothing is started.

Options come in layers, and a later one wins: what the cards want, presets, our own
options, and last the words behind ``--``, which are vLLM's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import regex as re

from tools.rig.base.errors import CannotError
from tools.rig.base.state import StateRoot
from tools.rig.host.gpu import Gpus
from tools.rig.serve import flags, layers, ports, safe, shapes, volta
from tools.rig.serve.flags import Read
from tools.rig.serve.folder import ModelFolder
from tools.rig.serve.parser import Parser
from tools.rig.serve.plan import ServePlan
from tools.rig.serve.presets import Preset
from tools.rig.serve.problem import Problem
from tools.rig.serve.server import LONGEST_NAME
from tools.rig.serve.volta import Chosen, Rule

HOST = "127.0.0.1"
TENSOR = 2
DRAIN_S = 0
"""As vLLM's own default. ``serve-stop --drain`` waits for requests all the same; a time
of the server's own also serves other ways to stop it, and makes a stop some 10 s longer
(seen in vLLM 0.32: workers then end only when they are told a second time)."""

_NO_NAME = re.compile(r"[^\w.-]+")


@dataclass(frozen=True)
class Wish:
    """What people ask for, typed; None, 0 and empty words are left to us.

    ``environment`` is the folder that has ``bin/python`` in it; ``cards`` are indexes
    with commas; ``drain_s`` are seconds; ``rest`` are the words behind ``--``, and
    ``from_file`` those of the `file` that ``--config`` named, over which they win.
    """

    model: Path
    environment: Path
    tensor: int | None = None
    pipeline: int | None = None
    name: str = ""
    served_name: str = ""
    host: str = ""
    port: int = 0
    cards: str = ""
    presets: tuple[Preset, ...] = ()
    api_key_file: Path | None = None
    insecure: bool = False
    drain_s: int = DRAIN_S
    rest: tuple[str, ...] = ()
    from_file: tuple[str, ...] = ()
    file: Path | None = None


@dataclass(frozen=True)
class Planned:
    """A plan, the options in it, and what is wrong.

    ``usage`` are faults of the command line; ``problems`` those of the machine.
    """

    plan: ServePlan
    options: Read
    chosen: Chosen
    is_volta: bool
    usage: tuple[Problem, ...] = ()
    problems: tuple[Problem, ...] = ()


def plan(
    wish: Wish,
    parser: Parser,
    gpus: Gpus,
    model: ModelFolder,
    root: StateRoot,
    *,
    env: Mapping[str, str],
    cwd: Path,
) -> Planned:
    """Return what a server would be started with.

    Parameters
    ----------
    parser
        What the environment's vLLM takes.
    gpus
        The cards of this machine.
    model
        What is in the model's folder.
    root
        Where its log goes.
    env
        The variables that it would get from us.
    cwd
        Where the user stands: relative paths behind ``--`` begin there.
    """
    typed = flags.read(parser, wish.rest)
    in_file = flags.read(parser, wish.from_file)
    usage = [
        replace(problem, what=f"in {wish.file}: {problem.what}")
        for problem in (*in_file.problems, *safe.refused(in_file))
    ]
    usage += [*typed.problems, *safe.refused(typed)]
    typed, in_file = layers.absolute(typed, cwd), layers.absolute(in_file, cwd)
    rest = layers.merged([in_file, typed])
    tensor, pipeline, others = _ranks(wish, typed, in_file)
    odd = volta.unreadable(wish.cards)
    usage += [odd] if odd else []
    chosen = Chosen()
    if odd is None and parser.device != "cpu":
        visible = env.get("CUDA_VISIBLE_DEVICES", "")
        count = tensor * pipeline * others
        chosen = volta.choose(gpus, count, wish.cards, visible)
    # a preset says for which cards it is, also where they cannot be seen
    guess = not chosen.cards and parser.device != "cpu" and bool(wish.presets)
    is_volta = chosen.is_volta or guess
    mla, limit = _of_model(model)
    ruled = volta.rules(parser, gpus, chosen.indexes, volta=is_volta, mla=mla)
    by_rule = [flags.read(parser, rule.words) for rule in ruled]
    by_preset = [layers.of_preset(parser, one, limit) for one in wish.presets]
    usual = flags.read(parser, _usual_words(wish, tensor, pipeline))
    ours = flags.read(parser, _own_words(wish, parser))
    presets_ = [read for read, _ in by_preset]
    options = layers.merged([*by_rule, *presets_, usual, in_file, ours, typed])
    notes = [
        rule.note
        for rule, read in zip(ruled, by_rule, strict=True)
        if rule.note and {*read.given} <= {*options.given}
    ]
    notes += [note for _, some in by_preset for note in some]
    notes += _about(rest)
    if wish.cards and parser.device == "cpu":
        notes.append("--cards is of no use: this vLLM computes on the processor")
    if wish.drain_s and not parser.has("--shutdown-timeout"):
        notes.append(f"vLLM {parser.version} aborts requests when it is stopped")
    host = _value(options, "host", HOST)
    port = _number(_value(options, "port", ""), ports.USUAL)
    # what the folder is called is not for us to judge
    for layer in (ours, rest):
        usage += safe.of_names(layer)
    no_port = ports.outside(port)
    usage += [no_port] if no_port else []
    wrong, more = safe.open_to_others(
        host, parser, env, key_file=wish.api_key_file, insecure=wish.insecure
    )
    usage += wrong
    notes += more
    served = _value(options, "served_model_name", _folder_name(wish.model))
    short = _NO_NAME.sub("-", served).strip(".-").encode(errors="ignore")
    name = wish.name or short[:LONGEST_NAME].decode(errors="ignore") or "server"
    words = [word for given in options.given for word in given.words]
    python = wish.environment / "bin" / "python"
    made = ServePlan(
        name=name,
        model=wish.model,
        served_name=served,
        python=python,
        # isolated: neither the current folder nor PYTHONPATH can hide the build
        argv=(
            *(os.fspath(python), "-I", "-m", "vllm.entrypoints.cli.main"),
            *("serve", os.fspath(wish.model), *words),
        ),
        env=_variables(wish, ruled, env),
        unset=("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"),
        cwd=Path("/"),
        host=host,
        port=port,
        api_key_file=wish.api_key_file,
        tensor=tensor,
        pipeline=pipeline,
        cards=chosen.indexes,
        log=root.path / "servers" / f"{name}.log",
        drain_s=_number(_value(options, "shutdown_timeout", "0"), 0),
        notes=tuple(notes),
        rest=_again(wish, typed),
    )
    problems = (*chosen.problems, *_hardware(wish, chosen))
    if is_volta:
        problems = (*problems, *volta.objections(options))
    return Planned(made, options, chosen, is_volta, tuple(usage), problems)


def _ranks(wish: Wish, typed: Read, in_file: Read) -> tuple[int, int, int]:
    """Return ranks of tensor, pipeline and data parallelism."""

    def number(dest: str, ours: int | None, other: int) -> int:
        found = _number(_value(in_file, dest, ""), 0) or other
        return _number(_value(typed, dest, ""), 0) or ours or found

    hardware = next((p.cards for p in wish.presets if p.cards), 0)
    pipeline = number("pipeline_parallel_size", wish.pipeline, 1)
    tensor = max(1, hardware // pipeline) if hardware else TENSOR
    return (
        number("tensor_parallel_size", wish.tensor, tensor),
        pipeline,
        number("data_parallel_size", None, 1),
    )


def _usual_words(wish: Wish, tensor: int, pipeline: int) -> list[str]:
    """Return what a server is given where nobody says otherwise."""
    words = ["--host", HOST, "--port", str(ports.USUAL)]
    # a name that begins with a dash would be taken for an option
    words.append(f"--served-model-name={_folder_name(wish.model)}")
    if tensor > 1:
        words += ["--tensor-parallel-size", str(tensor)]
    if pipeline > 1:
        words += ["--pipeline-parallel-size", str(pipeline)]
    return words


def _own_words(wish: Wish, parser: Parser) -> list[str]:
    words = []
    for flag, value in (
        ("--host", wish.host),
        ("--port", wish.port),
        ("--served-model-name", wish.served_name),
        ("--tensor-parallel-size", wish.tensor),
        ("--pipeline-parallel-size", wish.pipeline),
    ):
        words += [f"{flag}={value}"] if value else []
    if wish.drain_s and parser.has("--shutdown-timeout"):
        words += ["--shutdown-timeout", str(wish.drain_s)]
    return words


def _variables(
    wish: Wish, ruled: Sequence[Rule], env: Mapping[str, str]
) -> dict[str, str]:
    # programs that kernels are compiled with may lie beside the interpreter
    places = [os.fspath(wish.environment / "bin"), env.get("PATH", os.defpath)]
    made = {
        "PATH": os.pathsep.join(places),
        **volta.variables_of(ruled),
    }
    # the model is here: a hub that cannot be reached must not delay it
    for name in ("HF_HUB_OFFLINE", "VLLM_NO_USAGE_STATS"):
        if name not in env:
            made[name] = "1"
    return made


def _hardware(wish: Wish, chosen: Chosen) -> list[Problem]:
    """Hold the memory that a preset is for against the cards."""
    found = []
    for preset in wish.presets:
        for card in chosen.cards:
            if preset.memory and card.total and card.total < preset.memory * 0.9e9:
                have = round(card.total / (1 << 30))
                found.append(
                    Problem(
                        f"the preset {preset.name} is for cards with {preset.memory} "
                        f"GB, and card {card.index} has {have}",
                        "--preset 2x16",
                    )
                )
                break
    return found


def _of_model(model: ModelFolder) -> tuple[bool, int]:
    """Return whether its attention is latent, and its own longest context."""
    try:
        shape = shapes.read(model.config)
    except CannotError:
        return False, 0
    return any(getattr(c, "is_mla", False) for c in shape.caches), shape.max_len


def _about(rest: Read) -> list[str]:
    found = []
    trust = rest.last("trust_remote_code")
    if trust is not None and not trust.flag.startswith("--no-"):
        found.append("--trust-remote-code: code in the model's folder will be run")
    return found


def _again(wish: Wish, typed: Read) -> tuple[str, ...]:
    """Return the words behind ``--`` as they mean the same from anywhere."""
    words = [word for given in typed.given for word in given.words]
    return (*words, *(("--config", os.fspath(wish.file)) if wish.file else ()))


def _value(options: Read, dest: str, other: str) -> str:
    found = options.last(dest)
    return found.value if found is not None and found.values else other


def _folder_name(model: Path) -> str:
    return model.name or "model"


def _number(word: str, other: int) -> int:
    try:
        return max(0, int(word))
    except ValueError:
        return other
