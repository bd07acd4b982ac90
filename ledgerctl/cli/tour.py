"""The demo's chapters: what is told, and the commands that tell it. Nothing here is a figure."""

from typing import NamedTuple


class Step(NamedTuple):
    """One command of the tour.

    `{operation}` stands for the id of the newest operation. `settings` are variables that stand
    before the command. `exit_codes` are the ones that the story expects.
    """

    words: str
    exit_codes: tuple[int, ...] = (0,)
    settings: tuple[tuple[str, str], ...] = ()


class Chapter(NamedTuple):
    """A title, a few sentences, and the commands."""

    title: str
    words: str
    steps: tuple[Step, ...]


CHAPTERS = (
    Chapter(
        "The ground: indexes first",
        "A second refund of a job is impossible because a unique index makes it so.",
        (Step("db init"),),
    ),
    Chapter(
        "A job fails, is refunded, and recovers late",
        "A job is charged before it runs. The worker gives up at 30 s: the 40 credits go back and "
        "the job waits for another try.",
        (
            Step("job charge job-42 --account acct-7 --cost 40"),
            Step('job refund job-42 --reason "GPU timed out after 30 s"'),
        ),
    ),
    Chapter(
        "Two signals for one failure",
        "An error callback reports the same failure again. The guard is in the write, so nothing "
        "happens, which is success.",
        (Step('job refund job-42 --reason "error callback"'),),
    ),
    Chapter(
        "The result arrives after all",
        "The GPU finished at 32 s and the customer has the picture: the refund is taken back, once, "
        "however often somebody asks.",
        (Step('job reclaim job-42 --reason "result delivered"'), Step("job reclaim job-42")),
    ),
    Chapter(
        "Why is my balance what it is?",
        "The customer of acct-7 asks. A balance is the sum of the rows, so the rows are the answer.",
        (
            Step("job show job-42"),
            Step("balance show acct-7"),
            Step("balance replay acct-7"),
        ),
    ),
    Chapter(
        "Who did all this?",
        "Every change stands in the operator log, with its reason and its counts.",
        (Step("log list --limit 6"),),
    ),
)
