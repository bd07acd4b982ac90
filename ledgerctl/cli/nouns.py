"""The nouns of the command line: name, module, one line of help. Imports nothing."""

from typing import NamedTuple


class Noun(NamedTuple):
    """Hold one group of commands, or a single command at the root."""

    module: str
    text: str


NOUNS: dict[str, Noun] = {
    "balance": Noun("ledgerctl.cli.balance", "Show, replay and explain balances; grant credits."),
    "job": Noun("ledgerctl.cli.job", "Show jobs; charge, refund and reclaim them."),
    "dead": Noun("ledgerctl.cli.dead", "Look at dead letters; requeue, release and restore them."),
    "queue": Noun("ledgerctl.cli.queue", "The retry queue: stats, worker loop, recovery."),
    "summary": Noun(
        "ledgerctl.cli.summary", "Rebuild daily summaries; compare them to the ledger."
    ),
    "inbox": Noun("ledgerctl.cli.inbox", "Audit, mend and consume the inbox."),
    "ledger": Noun("ledgerctl.cli.ledger", "Audit, repair, correct and export the ledger."),
    "doctor": Noun("ledgerctl.cli.doctor", "Check stores, indexes, rights and queues."),
    "metrics": Noun("ledgerctl.cli.metrics", "Figures for Prometheus, and alerting rules."),
    "db": Noun("ledgerctl.cli.db", "Build indexes; print least-privilege roles."),
    "log": Noun("ledgerctl.cli.log", "What operators did, when and why."),
    "config": Noun("ledgerctl.cli.config", "Show, create and find the configuration."),
    "sandbox": Noun("ledgerctl.cli.sandbox", "Private servers to try things on."),
    "demo": Noun("ledgerctl.cli.demo", "Load the demo story and walk through the main commands."),
    "completion": Noun("ledgerctl.cli.completion", "Completion for bash, zsh and fish."),
    "help": Noun(
        "ledgerctl.cli.help", "Help on exit codes, verdicts, codes, time, output, safety and more."
    ),
}
