"""Put real output into the README: `python -m tests.write_readme`, with a running sandbox.

The story is loaded anew into the sandbox, and every command of the tour is run in order.
"""

import os
from datetime import UTC, datetime

from ledgerctl.sandbox import servers, story
from tests.cli.readme import BLOCK, README, commands, run


def main() -> None:
    """Run every console block and write what it printed below its commands."""
    running = servers.start(servers.own_directory())
    moment = datetime.now(UTC)
    now = moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    story.load(mongo_uri=running.mongo_uri, redis_url=running.redis_url, database="ledger", now=now)
    environment = {**os.environ, **servers.environment(running), "LEDGERCTL_OPERATOR": "demo"}
    run("ledgerctl db init", environment)
    text = README.read_text()
    for kind, block in BLOCK.findall(text):
        if kind == "console":
            fresh = "\n".join(
                f"$ {shown.command}\n{run(shown.command, environment).rstrip()}\n"
                for shown in commands(block)
            )
            text = text.replace(block, fresh)
    README.write_text(text)


if __name__ == "__main__":
    main()
