"""Tell the demo in chapters, and name the commands of each. Nothing here is a figure."""

from typing import NamedTuple


class TourStep(NamedTuple):
    """Hold one command of the tour.

    `{operation}` stands for the id of the newest operation. `settings` are variables that stand
    before the command. `exit_codes` are the ones that the story expects.
    """

    words: str
    exit_codes: tuple[int, ...] = (0,)
    settings: tuple[tuple[str, str], ...] = ()


class Chapter(NamedTuple):
    """Hold a title, a few sentences, and the commands."""

    title: str
    words: str
    steps: tuple[TourStep, ...]


AT_ONCE = (("LEDGERCTL_RETRY_BASE", "0s"),)  # so that nobody waits for the retry
INCIDENT = (("LEDGERCTL_DATABASE", "incident"),)

CHAPTERS = (
    Chapter(
        "The ground: indexes first",
        "A second refund of a job is impossible because a unique index makes it so.",
        (TourStep("db init"),),
    ),
    Chapter(
        "A job fails",
        "A job is charged before it runs. The worker gives up at 30 s: the 40 credits go back and "
        "the job waits for another try. An error callback then reports the same failure again: "
        "the guard is in the write, so nothing happens, which is success.",
        (
            TourStep("job charge job-42 --account acct-7 --cost 40"),
            TourStep('job refund job-42 --reason "GPU timed out after 30 s"'),
            TourStep('queue push job-42 --error "GPU timed out after 30 s"', settings=AT_ONCE),
            TourStep('job refund job-42 --reason "error callback"'),
        ),
    ),
    Chapter(
        "It recovers late",
        "The next worker succeeds, and a job that succeeds calls reclaim, always: the refund is "
        "taken back, once. The GPU of the first try reports its own success: nothing is left to "
        "take.",
        (
            TourStep("queue work --exec true --once"),
            TourStep('job reclaim job-42 --reason "late success of the first try"'),
        ),
    ),
    Chapter(
        "Support: why is my balance what it is?",
        "The customer of acct-7 asks. A balance is the sum of the rows, so the rows are the answer.",
        (
            TourStep("balance show acct-7"),
            TourStep("balance replay acct-7"),
            TourStep("balance explain acct-7 --job job-42"),
        ),
    ),
    Chapter(
        "A hopeless job",
        "Its fifth failure makes it a dead letter, which waits for a person: somebody looks, and "
        "lets it go with a reason.",
        (
            TourStep('queue push job-66 --error "model weights not found: sdxl-v7"'),
            TourStep(
                "dead list --account acct-19 --error sdxl --fields digest,job_id,attempts,verdict"
            ),
            TourStep('dead release job-66 --reason "sdxl-v7 was withdrawn, customer told" --yes'),
        ),
    ),
    Chapter(
        "On call: the morning after an outage",
        "The dead letters by cause, and which of them still matter. A dry run first, then the "
        "retryable ones go back, spread over ten minutes. What an operation did can be undone.",
        (
            TourStep("dead stats"),
            TourStep(
                'dead requeue --error "timed out" --spread 10m --dry-run --fields job_id,verdict'
            ),
            TourStep(
                'dead requeue --error "timed out" --spread 10m --reason "gpu-3 is back" --yes'
            ),
            TourStep("queue stats"),
            TourStep("dead restore {operation} --yes"),
            TourStep('dead requeue --all --spread 10m --reason "all of gpu-3 is back" --yes'),
            TourStep("dead list"),
        ),
    ),
    Chapter(
        "Cron: the day's figures",
        "Summaries are overwritten from the ledger, never added to.",
        (
            TourStep("summary rebuild --days 3"),
            TourStep("summary drift --days 3"),
            TourStep("summary show acct-7 --days 3"),
        ),
    ),
    Chapter(
        "Is everything in order?",
        "Every way in which flags, rows and messages can disagree is looked for.",
        (TourStep("ledger audit"), TourStep("log list")),
    ),
    Chapter(
        "A charge that nobody looks for",
        "A job that was charged and is on no list will neither run nor be refunded. Only the two "
        "stores together show it. What is named can go into a refund, once somebody has looked.",
        (
            TourStep("ledger audit --code stranded_charge", (5,)),
            TourStep('job refund job-38 --reason "lost between the stores"'),
            TourStep("ledger audit --code stranded_charge"),
        ),
    ),
    Chapter(
        "An incident: the usage page shows up to 2.4 times the ledger",
        "Another database, as it was found. Consumers claimed messages by one key and looked the "
        "claims up by another: both halves of every key are measured, not trusted.",
        (
            TourStep("inbox audit --lookup tenant_id,message_key", (5,), INCIDENT),
            TourStep("inbox stuck --limit 5", (5,), INCIDENT),
        ),
    ),
    Chapter(
        "The incident: figures and healing",
        "Drift compares summaries to the ledger, and --why computes each day anew under every known "
        "cause. The hourly rebuild covers two days; the older "
        "days lie outside its window and are left as they are, and the report says so. The "
        "balances come from the ledger: they were right all along and have not moved.",
        (
            TourStep("balance list --limit 5", settings=INCIDENT),
            TourStep("summary drift --days 4 --why", (5,), INCIDENT),
            TourStep("summary rebuild --days 2", settings=INCIDENT),
            TourStep("summary drift --days 2", settings=INCIDENT),
            TourStep("summary drift --days 4", (5,), INCIDENT),
            TourStep("balance list --limit 5", settings=INCIDENT),
        ),
    ),
)
