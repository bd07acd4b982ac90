"""A balance over time as a step chart: inline SVG for a page, blocks for a terminal."""

from bisect import bisect_right
from collections.abc import Sequence
from html import escape
from typing import Final

from ledgerctl.domain.explain import Point

WIDTH, HEIGHT = 800, 240  # of the drawing; CSS scales it
TOP, BOTTOM = 24, 30  # room for the highest label, and for the dates
DOTS_MAX = 60  # more would hide the line
TICKS = 4
BLOCKS: Final = " ▁▂▃▄▅▆▇█"


def svg(points: Sequence[Point], *, label: str) -> list[str]:
    """The chart as lines of SVG, self-contained and with a label for who cannot see it.

    A balance is constant between rows, so the line goes in steps.
    """
    if not points:
        return []
    low, high = extent(points)
    xs = [x_of(point, points) for point in points]
    ys = [y_of(point.balance, low, high) for point in points]
    steps = "".join(f"H{x:.1f}V{y:.1f}" for x, y in zip(xs[1:], ys[1:], strict=True))
    line = f"M{xs[0]:.1f} {ys[0]:.1f}{steps}H{WIDTH}"
    floor = y_of(max(low, min(0, high)), low, high)
    return [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">',
        f"<title>{escape(label)}</title>",
        f'<path class="area" d="{line}V{floor:.1f}H{xs[0]:.1f}Z"/>',
        *(grid_line(tick, low, high) for tick in ticks(low, high)),
        f'<path class="line" d="{line}"/>',
        *(dots(points, xs, ys) if len(points) <= DOTS_MAX else ()),
        *dates(points),
        "</svg>",
    ]


def extent(points: Sequence[Point]) -> tuple[int, int]:
    """The lowest and highest balance, nought included and never the same."""
    balances = [point.balance for point in points]
    low, high = min(0, *balances), max(0, *balances)
    return low, high if high > low else low + 1


def x_of(point: Point, points: Sequence[Point]) -> float:
    """Where a moment stands between the first and the last; a single one stands left."""
    first, last = points[0].at, points[-1].at
    return (WIDTH - 12) * ((point.at - first) / (last - first)) if last > first else 0.0


def y_of(balance: int, low: int, high: int) -> float:
    """Where a balance stands; integers of any size, no float before the ratio."""
    return TOP + (HEIGHT - TOP - BOTTOM) * ((high - balance) / (high - low))


def ticks(low: int, high: int) -> list[int]:
    """A few round numbers between the two."""
    step = round_step(-(-(high - low) // TICKS))
    first = -(-low // step) * step
    return list(range(first, high + 1, step))


def round_step(least: int) -> int:
    """The smallest of 1, 2, 5, 10, 20, … that is at least this."""
    power = int("1" + "0" * (len(str(max(least, 1))) - 1))
    return next(step for factor in (1, 2, 5, 10) if (step := factor * power) >= least)


def grid_line(tick: int, low: int, high: int) -> str:
    """A line across at a round number, with the number on it."""
    y = y_of(tick, low, high)
    kind = "zero" if tick == 0 else "grid"
    return f'<path class="{kind}" d="M0 {y:.1f}H{WIDTH}"/><text x="2" y="{y - 4:.1f}">{tick}</text>'


def dots(points: Sequence[Point], xs: Sequence[float], ys: Sequence[float]) -> list[str]:
    """A dot at each change, which names itself under the pointer."""
    return [
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4"><title>{day(point)}: {point.balance}</title></circle>'
        for point, x, y in zip(points, xs, ys, strict=True)
    ]


def dates(points: Sequence[Point]) -> list[str]:
    """The first and the last day, below."""
    first, last = day(points[0]), day(points[-1])
    y = HEIGHT - 6
    found = [f'<text x="2" y="{y}">{first}</text>']
    if last != first:
        found.append(f'<text x="{WIDTH - 2}" y="{y}" text-anchor="end">{last}</text>')
    return found


def day(point: Point) -> str:
    """The UTC day of a point."""
    return f"{point.at:%Y-%m-%d}"


# on a terminal


def blocks(points: Sequence[Point], *, width: int, height: int = 6) -> list[str]:
    """The chart in block characters, `width` columns wide, with its extremes and dates; never coloured."""
    if not points or points[-1].at <= points[0].at:
        return []
    low, high = extent(points)
    nought = height - 1 - min(height * -low // (high - low), height - 1)
    labels = {nought: "0", 0: str(high), height - 1: str(low)}
    margin = max(map(len, labels.values())) + 1
    room = max(width - margin, 10)
    eighths = [8 * height * (value - low) // (high - low) for value in sampled(points, room)]
    rows = [
        f"{labels.get(row, ''):>{margin - 1}} "
        + "".join(BLOCKS[min(8, max(0, one - 8 * (height - 1 - row)))] for one in eighths)
        for row in range(height)
    ]
    first, last = ends(points)
    return [*map(str.rstrip, rows), f"{'':{margin}}{first}{last:>{max(room - len(first), 11)}}"]


def ends(points: Sequence[Point]) -> tuple[str, str]:
    """The first and the last day; the times where that is one day."""
    days = day(points[0]), day(points[-1])
    if days[0] != days[1]:
        return days
    return f"{points[0].at:%H:%M:%S}", f"{points[-1].at:%H:%M:%S}"


def sampled(points: Sequence[Point], columns: int) -> list[int]:
    """The balance at the end of each of so many equal stretches of time."""
    first, last = points[0].at, points[-1].at
    moments = [point.at for point in points]
    ends = (first + (last - first) * (column + 1) / columns for column in range(columns))
    return [points[max(bisect_right(moments, end) - 1, 0)].balance for end in ends]
