"""Say in the same words what every format of a balance's story says: heading, figures, remarks."""

from collections.abc import Iterable, Iterator

from ledgerctl.domain.explain import DAYS_MAX, Story, date_words, job_words, moment_words
from ledgerctl.domain.rows import OtherType, RowType, kind_of_row, rank
from ledgerctl.domain.times import format_time
from ledgerctl.render.text import rows

PERIOD_FIGURES = (
    "rows", "jobs", "charged", "refunded", "reclaimed", "granted", "corrected", "other", "net",
    "balance",
)  # fmt: skip


def heading(story: Story) -> str:
    """Say whose balance it is, how much, and as of when."""
    if story.job_id is not None:
        return (
            f"{job_heading(story.job_id)} of account {story.account_id}: its rows come to"
            f" {credits(story.book.closing)}"
        )
    return f"Account {story.account_id}: balance {credits(story.book.closing)} {as_of(story)}"


def job_heading(job_id: str) -> str:
    """Head a job's section; its id stays as it is."""
    return job_words(job_id) if job_words(job_id) == job_id else f"Job {job_id}"


def as_of(story: Story) -> str:
    """Say which moment the balance holds for, in the words that were asked."""
    asked = story.asked
    if asked.before is not None:
        return f"to {moment_words(asked.before, asked.last_day, story.zone)}"
    return f"as of {date_words(story.as_of, story.zone)}"


def right_words(story: Story) -> str:
    """Say what would be right; empty where nothing is wrong."""
    if not story.off_by:
        return ""
    off = f"{credits(abs(story.off_by))} too {'many' if story.off_by > 0 else 'few'}"
    if story.job_id is not None:
        return f"This job has {off}."
    if story.right_balance is None:
        return f"The account has {off} as of {date_words(story.as_of, story.zone)}."
    return f"The account has {off}; the right balance would be {story.right_balance}."


def credits(amount: int) -> str:
    """Write an amount with its unit."""
    return f"{amount} credit" if abs(amount) == 1 else f"{amount} credits"


def figures(story: Story) -> list[tuple[str, int]]:
    """List the figures that add up to the balance; of one job: to its net, then to the balance."""
    book = story.book
    counts = sorted(book.count_by_type.items(), key=lambda one: (rank(one[0]), one[0]))
    found = [(type_words(count, name), book.by_type.get(name, 0)) for name, count in counts]
    asked = story.asked
    if asked.since is not None and story.job_id is None:
        start = moment_words(asked.since, asked.first_day, story.zone)
        found.insert(0, (f"balance before {start}", book.opening))
    if story.account_balance is not None:
        found.append(("this job", book.closing))
        found.append(("everything else", story.account_balance - book.closing))
        found.append(("balance of the account", story.account_balance))
        return found
    return [*found, ("balance", book.closing)]


def type_words(count: int, name: str) -> str:
    """Return how many rows of a type there are, in words."""
    kind = kind_of_row(name)
    plural = "" if count == 1 else "s"
    match kind:
        case RowType.RECLAIM:
            return f"{count} charge{plural} taken again"
        case RowType.GRANT | RowType.CHARGE | RowType.REFUND | RowType.CORRECTION:
            return f"{count} {kind}{plural}"
        case OtherType():
            return f"{count} of the unknown type {name}" if name else f"{count} without a type"


def period_words(story: Story) -> str:
    """Say what the table of a long story shows, and how to see more."""
    unit = "day" if len(story.book.days) <= DAYS_MAX else "month"
    return (
        f"By {unit} ({story.zone}), because there are {story.book.rows} rows; --job JOB tells one"
        " job, --from and --to a shorter time:"
    )


def remarks(story: Story) -> list[str]:
    """Say what lies outside the figures, or inside and should be known."""
    found = []
    if story.unusable:
        found.append(f"{rows(len(story.unusable))} cannot be summed: left out of every figure")
    if story.undated_left_out:
        found.append(
            f"{rows(story.undated_left_out)} without a usable date: outside every window with an end"
        )
    if story.future_rows:
        found.append(f"{rows(story.future_rows)} dated after {format_time(story.as_of)}: counted")
    return found


def aligned(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Write figures below each other, their last digits in one column."""
    told = list(pairs)
    wide, figures_wide = (max(map(len, column)) for column in zip(*told, strict=True))
    for name, value in told:
        yield f"  {name:<{wide}}  {value:>{figures_wide}}"
