"""All balances, beside the plain-text tools that people keep such ledgers in."""

import csv
import shutil
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

from tests.bench.generate import Plan
from tests.bench.place import BenchFailed, Claim, Command, Place, ratio, say, skipped

WORK = "500,000 rows (1,000,000 postings), 2,000 accounts, one with 1 %: balance list"
ROWS = 500_000
POSTING = "{at:%Y-%m-%d} {job}\n    credits:{account}  {amount}\n    service:{type}\n\n"


def run(place: Place) -> Iterator[Claim]:
    """Ours against `ledger balance` and `hledger balance`, the same data, the same figures."""
    rows = place.size.of(ROWS)
    name = place.ledger(Plan(rows=rows, all_types=False))
    journal = write_journal(place, name)
    ours, output = place.keeping(
        place.ours("balance", "list", "-o", "csv", database=name), "balances.csv"
    )
    peers = {
        "ledger": ["ledger", "--args-only", "-f", str(journal), "balance", "--flat", "--no-total"],
        "hledger": ["hledger", "-f", str(journal), "balance", "--flat", "--no-total", "-O", "csv"],
    }
    here = {peer: words for peer, words in peers.items() if shutil.which(peer)}
    commands = {"ledgerctl": ours} | {
        peer: place.keeping(Command(words), f"{peer}.txt")[0] for peer, words in here.items()
    }
    best = place.alternately(commands)
    figures = {line["account_id"]: int(line["balance"]) for line in csv.DictReader(output.open())}
    for peer, found in (("ledger", of_ledger), ("hledger", of_hledger)):
        if peer in here and found(place.directory / f"{peer}.txt") != without_zeros(figures):
            raise BenchFailed(f"{peer} finds other balances")
    if "ledger" in here:
        yield ratio(
            "as fast as ledger", best["ledger"].seconds, best["ledgerctl"].seconds, 3, at_least=True
        )
        yield ratio(
            "of ledger's memory", best["ledgerctl"].memory_mb, best["ledger"].memory_mb, 0.1
        )
    else:
        yield skipped("ledger", "ledger is not on PATH: apt-get install ledger")
    if "hledger" in here:
        yield ratio(
            "as fast as hledger",
            best["hledger"].seconds,
            best["ledgerctl"].seconds,
            15,
            at_least=True,
        )
    else:
        yield skipped("hledger", "hledger is not on PATH: apt-get install hledger")
    unnamed = place.ledger(Plan(rows=rows, all_types=False, named=0))
    compared = place.alternately(
        {
            "with accounts": ours,
            "without": place.ours("balance", "list", "-o", "csv", database=unnamed),
        }
    )
    yield ratio(
        "of that, no row with its account",
        compared["without"].seconds,
        compared["with accounts"].seconds,
        3,
    )


def write_journal(place: Place, name: str) -> Path:
    """The ledger's rows as the shortest journal that both tools read."""
    path = place.directory / f"{name}.journal"
    if not path.exists():
        say("writing the journal")
        with path.open("w", encoding="utf-8") as out:
            for row in place.database(name).ledger.find().sort("created_at", 1):
                out.write(
                    POSTING.format(
                        at=row["created_at"],
                        job=row["job_id"],
                        account=row["account_id"],
                        amount=row["amount"],
                        type=row["type"],
                    )
                )
    return path


def without_zeros(figures: dict[str, int]) -> dict[str, int]:
    """Both tools leave out accounts that stand at zero."""
    return {account: balance for account, balance in figures.items() if balance}


def of_ledger(output: Path) -> dict[str, int]:
    """The balances that `ledger balance --flat` printed."""
    found = {}
    for line in output.read_text(encoding="utf-8").splitlines():
        amount, _, account = line.strip().partition("  ")
        if account.startswith("credits:"):
            found[account.removeprefix("credits:")] = int(Decimal(amount))
    return found


def of_hledger(output: Path) -> dict[str, int]:
    """The balances that `hledger balance -O csv` printed."""
    with output.open(encoding="utf-8") as lines:
        return {
            line["account"].removeprefix("credits:"): int(Decimal(line["balance"]))
            for line in csv.DictReader(lines)
            if line["account"].startswith("credits:")
        }
