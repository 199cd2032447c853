# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What stands round a line is taken off; what the program wrote stays."""

from __future__ import annotations

import json

import pytest

from tools.rig.diagnose.clean import LIMIT, clean

SAID = "fatal error: boom"

PREFIXES = [
    "\x1b[01;31m\x1b[K",
    "2026-11-30T12:00:00.1234567Z ",
    "2026-11-30 12:00:00,123 - ",
    "2026-11-30T12:00:00+0800 ",
    "    2026-11-30T12:00:00+0800 ",
    "    #12 34.56 ",
    "    Nov 30 12:04:04 gpu01 vllm[123]: ",
    "2026-11-30 12:00:00,123 - INFO - ",
    "2026-11-30 12:00:00,123 - root - ERROR - ",
    "2026-11-30 12:00:00 | ERROR | stderr | ",
    "[12:00:00] ",
    "Nov 30 12:04:04 ",
    "[pod/vllm-0/vllm] ",
    "12\t",
    "3: ",
    "INFO 2026-11-30T12:00:00.1Z [resource.labels.containerName: vllm] ",
    "2026-11-30T12:00:00.5Z stderr F ",
    "[2026-11-30 12:00:00] ",
    "Nov 30 12:04:04 gpu01 vllm[123]: ",
    "Nov  3 12:04:04 gpu01 kernel: [  123.456789] ",
    "авг 18 14:15:04 llm python3[28059]: ",
    "9月 01 10:50:30 gpu-01 bash[37921]: ",
    "févr. 02 10:50:30 gpu01 vllm[7]: ",
    "[2026-11-30 12:00:00] [/bin/sh]: ",
    "2026-11-30T12:00:00+0000 gpu01 python3[77]: ",
    "gpu01 kernel: ",
    "[ 1234.567890] ",
    "<3>[12.500000] ",
    "[Mon Nov 30 12:00:00 2026] ",
    "vllm-1  | ",
    "#12 34.56 ",
    "#12 34.56   ",
    "#12   ",
    "93.1 ",
    "[2026-11-30 12:04:04,123] [INFO] ",
    "[2026-11-30 12:04:04 +0000] [77] [ERROR] ",
    "4814.8   ",
    "E   ",
    "##[error]",
    "nox > ",
    "(EngineCore_DP0 pid=12) ",
    "(Worker_TP0 pid=12) ERROR 11-30 12:00:00 [core.py:12] ",
    "ERROR 05-01 10:00:00 core.py:340] ",
    "(RayWorkerWrapper pid=1234, ip=10.0.0.1) ",
    "(VllmWorker rank=0 pid=123) ",
    "(VllmWorker TP0 pid=442) ",
    "[rank1]: ",
    "[1,0]<stderr>:",
    "      │ ",
    "      ╰─▶ ",
    "  | ",
    "> ",
    "vllm-1  | (APIServer pid=1) ERROR 11-30 12:00:00 [a/b.py:1] ",
    "Nov 30 12:04:04 a vllm[123]: (EngineCore pid=1) ERROR 11-30 12:00:00 [c.py:1] ",
]


class TestPrefixes:
    """Terminals, journals, containers, CI systems, workers and vLLM's logger."""

    @pytest.mark.parametrize("prefix", PREFIXES)
    def test_taken_off(self, prefix: str) -> None:
        """Whatever stands in front, the line is what the program wrote."""
        (line,) = clean(7, f"{prefix}{SAID}\r\n")
        assert line.text == SAID
        assert line.number == 7

    @pytest.mark.parametrize(
        "text",
        [
            "143 | #error -- unsupported GNU version!",
            "ERROR:    [Errno 98] error while attempting to bind",
            "x.cu(3): error: expected a ;",
            "(foo) bar",
            "[3/102] Building CUDA object a.o",
            "error: subprocess-exited-with-error",
            "× Failed to build",
        ],
    )
    def test_not_a_prefix(self, text: str) -> None:
        """What only looks like a prefix stays."""
        assert clean(1, text)[0].text == text

    def test_docker_json(self) -> None:
        """Docker's json-file driver wraps each line."""
        raw = json.dumps({"log": f"{SAID}\n", "stream": "stderr", "time": "x"})
        assert clean(1, raw)[0].text == SAID
        assert clean(1, '{"log": broken')[0].text == '{"log": broken'
        assert clean(1, '{"log":[1]}')[0].text == '{"log":[1]}'

    def test_overwritten(self) -> None:
        """What a progress bar overwrote was still written, in order."""
        lines = clean(3, f" 10% done\r\r{SAID}\r")
        assert [line.text for line in lines] == ["10% done", SAID]
        assert {line.number for line in lines} == {3}


class TestSource:
    """Who wrote a line, and how deep in the tree of processes it runs."""

    @pytest.mark.parametrize(
        ("prefix", "source", "depth"),
        [
            ("", "", 0),
            ("(Worker_TP1 pid=3) ", "Worker_TP1 pid=3", 0),
            ("(Worker pid=3) (Worker_TP1 pid=3) ", "Worker_TP1 pid=3", 0),
            ("[rank0]: ", "rank0", 0),
            ("(EngineCore_DP0 pid=2) ", "EngineCore_DP0 pid=2", 1),
            ("(APIServer pid=1) ", "APIServer pid=1", 2),
        ],
    )
    def test_process(self, prefix: str, source: str, depth: int) -> None:
        """Workers come before engines, engines before API servers."""
        (line,) = clean(1, f"{prefix}{SAID}")
        assert (line.source, line.depth) == (source, depth)

    def test_indent(self) -> None:
        """Columns in front of the text tell a line that goes on from the last one."""
        assert clean(1, f"  {SAID}")[0].indent == 2
        assert clean(1, SAID)[0].indent == 0


class TestLanguages:
    """Quotes and the most frequent messages of other locales."""

    @pytest.mark.parametrize("quoted", ["‘x’", "“x”", "«x»", "„x“", "「x」"])
    def test_quotes(self, quoted: str) -> None:
        """Every kind of quotes is the plain one."""
        assert clean(1, f"no member {quoted}")[0].text == "no member 'x'"

    @pytest.mark.parametrize(
        ("foreign", "english"),
        [
            ("a.c:1:2: 致命错误：b.h：没有那个文件或目录", "fatal error: b.h"),
            ("写入失败: 设备上没有空间", "No space left on device"),
            ("Auf dem Gerät ist kein Speicherplatz mehr verfügbar", "No space left"),
            ("已杀死", "Killed"),
            ("a.c:1:2: schwerwiegender Fehler: x", "fatal error: x"),
            ("b.h: Datei oder Verzeichnis nicht gefunden", "No such file or directory"),
            (
                "a.c:1: erreur fatale : b.h : Aucun fichier ou dossier de ce type",
                "fatal error: b.h: No such file or directory",
            ),
            ("ld: ошибка: На устройстве не осталось свободного места", "No space left"),
            ("cc1: エラー: メモリを確保できません", "error: Cannot allocate memory"),
            ("ld: -lcuda kann nicht gefunden werden", "cannot find -lcuda"),
            (
                "ld: 找不到 -lcuda: 没有那个文件或目录",
                "cannot find -lcuda: No such",
            ),
            ("mold: fatal: library not found: cuda", "mold: cannot find -lcuda"),
            ("ld: ne peut trouver -lcudart", "cannot find -lcudart"),
            ("ld: -lnccl が見つかりません", "cannot find -lnccl"),
        ],
    )
    def test_messages(self, foreign: str, english: str) -> None:
        """The patterns of the catalogue, which are English, match them."""
        assert english in clean(1, foreign)[0].text


def test_long_line() -> None:
    """A very long line is looked at in parts that overlap, the middle too."""
    lines = clean(7, "a" * 50_000 + " error: x " + "b" * 20_000)
    assert {line.number for line in lines} == {7}
    assert max(len(line.text) for line in lines) <= LIMIT
    assert any(" error: x " in line.text for line in lines)
    assert len(clean(1, "a" * 10_000_000)) < 1_000
