"""The doctor's look at the files that settings were read from."""

from ledgerctl.config_file import permission_problem
from ledgerctl.domain.doctor import Finding, Status, ok
from ledgerctl.operations.doctor_look import Look


def permissions(look: Look) -> Finding:
    """Whether others may read a password in these files, or change what they say."""
    sources = look.stores.settings.sources
    if not sources:
        return ok("no configuration file is in use")
    problems = {path: why for path in sources if (why := permission_problem(path))}
    if not problems:
        return ok(f"private: {', '.join(str(path) for path in sources)}")
    changeable = any("changed by others" in why for why in problems.values())
    return Finding(
        Status.FAIL if changeable else Status.WARN,
        "; ".join(problems.values()),
        f"`chmod 600 {' '.join(str(path) for path in problems)}`",
    )
