"""The nouns of the command line, each with one line of help; module `ledgerctl.cli.NAME` has it. Imports nothing."""

NOUNS = {
    "balance": "Show, replay and explain balances; grant credits.",
    "job": "Show jobs; charge, refund and reclaim them.",
    "dead": "Look at dead letters; requeue, release and restore them.",
    "queue": "The retry queue: stats, worker loop, recovery.",
    "summary": "Rebuild daily summaries; compare them to the ledger.",
    "inbox": "Audit, mend and consume the inbox.",
    "ledger": "Audit, repair, correct and export the ledger.",
    "doctor": "Check stores, indexes, rights and queues.",
    "metrics": "Figures for Prometheus, and alerting rules.",
    "db": "Build indexes; print least-privilege roles.",
    "log": "What operators did, when and why.",
    "config": "Show, create and find the configuration.",
    "sandbox": "Private servers to try things on.",
    "demo": "Load the demo story and walk through the main commands.",
    "completion": "Completion for bash, zsh and fish.",
    "help": "Help on exit codes, verdicts, codes, time, output, safety and more.",
}
