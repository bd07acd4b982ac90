"""Draw a balance over time as a step chart: inline SVG for a page, blocks for a terminal."""

from bisect import bisect_right
from collections.abc import Sequence
from html import escape
from typing import Final
from zoneinfo import ZoneInfo

from ledgerctl.domain.days import day_of
from ledgerctl.domain.explain import Point, local_time, short_day

WIDTH, HEIGHT = 800, 200  # of the drawing; CSS stretches it, its labels are text of the page
DOTS_MAX = 60  # more would hide the line
DATES = 4  # along the axis
BLOCKS: Final = " ▁▂▃▄▅▆▇█"
HANGING: Final = " ▀█"  # below zero a terminal has but halves


def svg(points: Sequence[Point], *, label: str) -> list[str]:
    """Draw the chart as lines of SVG, with a label for readers who cannot see it.

    A balance is constant between rows, so the line goes in steps.
    """
    low, high = extent(points)
    xs = [x_of(point, points) for point in points]
    ys = [y_of(point.balance, low, high) for point in points]
    steps = "".join(f"H{x:.1f}V{y:.1f}" for x, y in zip(xs[1:], ys[1:], strict=True))
    line = f"M{xs[0]:.1f} {ys[0]:.1f}{steps}H{WIDTH}"
    floor = y_of(min(max(low, 0), high), low, high)
    dots = "".join(f"M{x:.1f} {y:.1f}h0" for x, y in zip(xs, ys, strict=True))
    return [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img"'
        f' aria-label="{escape(label)}">',
        f'<path class="grid" d="M0 0H{WIDTH}M0 {HEIGHT}H{WIDTH}"/>',
        f'<path class="zero" d="M0 {floor:.1f}H{WIDTH}"/>' if low <= 0 <= high else "",
        f'<path class="area" d="{line}V{floor:.1f}H{xs[0]:.1f}Z"/>',
        f'<path class="line" d="{line}"/>',
        f'<path class="dots" d="{dots}"/>' if len(points) <= DOTS_MAX else "",
        "</svg>",
    ]


def extent(points: Sequence[Point]) -> tuple[int, int]:
    """Return the lowest and the highest value of the axis, never the same.

    Zero is included where it is in sight: no farther away than the balances are apart.
    """
    balances = [point.balance for point in points]
    low, high = min(balances), max(balances)
    if max(low, -high) <= high - low or low == high:
        low, high = min(low, 0), max(high, 0)
    return low, max(high, low + 1)


def x_of(point: Point, points: Sequence[Point]) -> float:
    """Place a moment between the first and the last; a single one stands left."""
    first, last = points[0].at, points[-1].at
    return WIDTH * ((point.at - first) / (last - first)) if last > first else 0.0


def y_of(balance: int, low: int, high: int) -> float:
    """Place a balance; integers of any size, no float before the ratio."""
    return HEIGHT * ((high - balance) / (high - low))


def dates(points: Sequence[Point], zone: ZoneInfo) -> list[str]:
    """Label the time axis at equal distances: with days, or with times where all is of one day."""
    first, last = points[0].at, points[-1].at
    moments = [first + (last - first) * n / (DATES - 1) for n in range(DATES)]
    days = [short_day(day_of(one, zone)) for one in moments]
    if days[0] == days[-1]:
        days = [f"{local_time(one, zone):%H:%M:%S}" for one in moments]
    return list(dict.fromkeys(days))


# on a terminal


def blocks(points: Sequence[Point], *, width: int, zone: ZoneInfo, height: int = 6) -> list[str]:
    """Draw the chart in block characters, `width` columns wide, with its extremes and dates.

    Bars start from zero where zero is in sight. Never coloured.
    """
    if not points or points[-1].at <= points[0].at:
        return []
    low, high = extent(points)
    base = min(max(low, 0), high)
    below = rows_below(low, base, high, height)
    labels = {height - below - 1: "0"} if low < base < high else {}
    labels |= {0: f"{high:,}", height - 1: f"{low:,}"}
    margin = max(map(len, labels.values())) + 1
    room = max(width - margin, 10)
    up = BLOCKS, height - below, base, high
    down = HANGING, below, base, low
    columns = [(*reversed(bar(value, *up)), *bar(value, *down)) for value in sampled(points, room)]
    rows = [
        f"{labels.get(row, ''):>{margin - 1}} {''.join(column[row] for column in columns)}"
        for row in range(height)
    ]
    said = dates(points, zone)
    last = said[-1] if len(said) > 1 else ""
    return [*map(str.rstrip, rows), f"{'':{margin}}{said[0]}{last:>{max(room - len(said[0]), 11)}}"]


def rows_below(low: int, base: int, high: int, height: int) -> int:
    """Share the rows out to what lies above the base line and below it, one at least for each."""
    if base in {low, high}:
        return 0 if base == low else height
    return min(max(round_ratio(height * (base - low), high - low), 1), height - 1)


def round_ratio(above: int, below: int) -> int:
    """Divide to the nearest whole number, exactly at any size."""
    return (2 * above + below) // (2 * below)


def bar(value: int, signs: str, rows: int, base: int, end: int) -> list[str]:
    """Draw one column from the base line outwards, a sign a row; any amount shows, however small."""
    full = len(signs) - 1
    length = max((value - base) * (1 if end >= base else -1), 0)
    level = max(full * rows * length // max(abs(end - base), 1), length > 0 or value == base != 0)
    return [signs[min(max(level - full * row, 0), full)] for row in range(rows)]


def sampled(points: Sequence[Point], columns: int) -> list[int]:
    """Return the balance at the end of each of so many equal stretches of time."""
    first, last = points[0].at, points[-1].at
    moments = [point.at for point in points]
    ends = (first + (last - first) * (column + 1) / columns for column in range(columns))
    return [points[max(bisect_right(moments, end) - 1, 0)].balance for end in ends]
