"""The root help as stored text: printed without loading anything; a test keeps it true."""

ROOT_HELP = """\
Usage: ledgerctl [OPTIONS] COMMAND [ARGS]...

  Operate a credits ledger: explain balances, drain dead letters, rebuild daily
  summaries.

Options:
  -V, --version  Show the version and exit.
  -h, --help     Show this message and exit.

Commands:
  balance     Show, replay and explain balances; grant credits.
  job         Show jobs; charge, refund and reclaim them.
  dead        Look at dead letters; requeue, release and restore them.
  queue       The retry queue: stats, worker loop, recovery.
  summary     Rebuild daily summaries; compare them to the ledger.
  inbox       Audit, mend and consume the inbox.
  ledger      Audit, repair, correct and export the ledger.
  doctor      Check stores, indexes, rights and queues.
  metrics     Figures for Prometheus, and alerting rules.
  db          Build indexes; print least-privilege roles.
  log         What operators did, when and why.
  config      Show, create and find the configuration.
  sandbox     Private servers to try things on.
  demo        Load the demo story and walk through the main commands.
  completion  Completion for bash, zsh and fish.
  help        Help on exit codes, verdicts, codes, time, output, safety and
              more.

Begin with:
  ledgerctl demo         a tour on private servers that it starts itself
  ledgerctl doctor       is everything in order?
  ledgerctl COMMAND -h   what a command does, with examples
  ledgerctl help safety  what is promised; also verdicts, codes, exit-codes and
                         others
"""
