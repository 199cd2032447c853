# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The memory of one compile over its life."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any


@dataclass(frozen=True)
class Curve:
    """Resident bytes of a compile and its children at seconds since its start.

    Between two points the memory is taken to go straight from one to the other; before
    the first it is the first's, and after the last the compile has ended.
    """

    points: tuple[tuple[float, int], ...]

    @classmethod
    def of(cls, samples: Iterable[Sequence[Any]]) -> Curve:
        """Return the curve of samples as they come from a file, in any order.

        Raises
        ------
        ValueError
            When there is none, or one is no pair of numbers that can be measured.
        """
        latest: dict[float, int] = {}
        for second, size in samples:
            second, size = float(second), int(size)
            if not 0 <= second < 1e7 or size < 0:
                raise ValueError(f"no memory at a time: {second}, {size}")
            latest[second] = max(size, latest.get(second, 0))
        if not latest:
            raise ValueError("a curve without points")
        return cls(tuple(sorted(latest.items())))

    @classmethod
    def flat(cls, seconds: float, size: int) -> Curve:
        """Return a curve that holds `size` bytes for its whole life."""
        return cls(((0.0, size), (max(0.0, seconds), size)))

    @property
    def duration(self) -> float:
        """Seconds from start to end."""
        return self.points[-1][0]

    @cached_property
    def peak(self) -> int:
        """Most bytes."""
        return max(size for _, size in self.points)

    @cached_property
    def area(self) -> float:
        """Memory-time in byte seconds."""
        pairs = zip(self.points, self.points[1:])
        body = sum((t2 - t1) * (b1 + b2) / 2 for (t1, b1), (t2, b2) in pairs)
        return body + self.points[0][0] * self.points[0][1]

    def at(self, second: float) -> float:
        """Return the bytes at a moment; none after the end."""
        if second > self.duration:
            return 0
        index = bisect_right(self._times, second)
        if index == 0:
            return self.points[0][1]
        (t1, b1) = self.points[index - 1]
        if index == len(self.points):
            return b1
        (t2, b2) = self.points[index]
        return b1 + (b2 - b1) * (second - t1) / (t2 - t1)

    def ahead(self, second: float, horizon: float | None = None) -> float:
        """Return the most bytes from a moment on, within a horizon or to the end."""
        end = self.duration if horizon is None else second + max(0.0, horizon)
        inside = self.points[
            bisect_right(self._times, second) : bisect_right(self._times, end)
        ]
        edges = (
            self.at(second),
            self.at(min(end, self.duration)) * (second <= self.duration),
        )
        return max(*edges, *(size for _, size in inside))

    def scaled(self, seconds: float = 1.0, size: float = 1.0) -> Curve:
        """Return the curve of a compile so many times as long and as large."""
        return Curve(tuple((s * seconds, int(b * size)) for s, b in self.points))

    def thinned(self, count: int) -> Curve:
        """Return about the same curve with at most `count` points; its peak stays.

        Every stretch of time keeps its highest point at its own moment.
        """
        if len(self.points) <= max(3, count):
            return self
        spans = max(1, count - 2)
        best: dict[int, tuple[float, int]] = {}
        for second, size in self.points[1:-1]:
            span = min(spans - 1, int(second / self.duration * spans))
            if span not in best or size > best[span][1]:
                best[span] = (second, size)
        return Curve((self.points[0], *best.values(), self.points[-1]))

    def cells(self, step: float, since: float = 0.0) -> list[float]:
        """Return the most bytes in each stretch of `step` seconds from `since` on."""
        points, end = self.points, self.duration
        count = math.ceil((end - since) / step)
        cells: list[float] = []
        index = bisect_right(self._times, since)
        before = self.at(since)
        for number in range(1, count + 1):
            edge, most = since + number * step, before
            if edge > end:
                edge = end
            while index < len(points) and points[index][0] <= edge:
                if points[index][1] > most:
                    most = points[index][1]
                index += 1
            before = float(points[-1][1])
            if 0 < index < len(points):
                (t1, b1), (t2, b2) = points[index - 1], points[index]
                before = b1 + (b2 - b1) * (edge - t1) / (t2 - t1)
            elif not index:
                before = points[0][1]
            cells.append(before if before > most else most)
        return cells

    @cached_property
    def _times(self) -> list[float]:
        return [second for second, _ in self.points]
