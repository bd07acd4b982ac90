"""One table from the error replies of both servers to our errors; what it does not know is quoted."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from ledgerctl.errors import (
    CrossSlot,
    LedgerctlError,
    NotPermitted,
    ReadOnlyReplica,
    RefusedByServer,
    SettingsError,
    StoreBusy,
    StoreUnavailable,
    UnexpectedReply,
    WrongKeyType,
)


class Answer(NamedTuple):
    """Our error for a reply; `said` replaces the server's words, `passes` marks what time cures."""

    error: type[LedgerctlError]
    hint: str
    said: str = ""
    may_be_applied: bool = False
    passes: bool = False


TRY_AGAIN = "try again"
UNKNOWN = Answer(
    UnexpectedReply, "nothing was changed; the server's documentation explains its reply"
)
RIGHTS = Answer(NotPermitted, "`ledgerctl db roles` prints the rights that each role needs")
BUSY = Answer(StoreBusy, TRY_AGAIN)
LOGIN = Answer(
    NotPermitted,
    "check the credentials in mongo_uri; `ledgerctl config show` says where it comes from",
    "MongoDB refused the user or its password",
)
SECONDARY = Answer(
    StoreUnavailable,
    "try again once a primary is elected",
    "the MongoDB server is not the primary",
    passes=True,
)
STEPPING_DOWN = Answer(
    StoreUnavailable, "try again once a primary is elected", may_be_applied=True, passes=True
)
UNREACHED = Answer(
    StoreUnavailable,
    "try again once every member and shard can be reached",
    may_be_applied=True,
    passes=True,
)
SERVER_RULE = Answer(RefusedByServer, "ask whoever set this rule on the server")

MONGO: Mapping[int, Answer] = {
    **dict.fromkeys((11, 18, 31, 8000), LOGIN),
    13: RIGHTS,
    # Locks, time limits, conflicts, a full disk, snapshots and cursors that the server let go of.
    **dict.fromkeys(
        (24, 39, 43, 46, 50, 112, 117, 134, 175, 202, 225, 237, 239, 244, 246, 251, 262, 267, 462,
         11601, 14031),
        BUSY,
    ),
    **dict.fromkeys((10107, 13435, 13436, 10058), SECONDARY),
    **dict.fromkeys((91, 189, 11600, 11602), STEPPING_DOWN),
    **dict.fromkeys((6, 7, 64, 89, 9001), UNREACHED),
    **dict.fromkeys((70, 71, 133, 150, 13388), UNREACHED._replace(may_be_applied=False)),
    **dict.fromkeys((20, 61, 121, 166, 263, 10003), SERVER_RULE),
    13297: Answer(SettingsError, "write the database's name as the server spells it"),
}  # fmt: skip
IN_THE_WAY = frozenset({24, 112, 244, 246, 251, 267})  # another transaction holds the document

NOT_AT_HOME = Answer(CrossSlot, "give the lists one hash tag in [keys], as in {jobs}:retry")
LOADING = Answer(StoreUnavailable, "the server is loading its data: try again", passes=True)
NO_COMMAND = Answer(
    NotPermitted, "the server has renamed or disabled this command: ask whoever runs it"
)
REDIS: Mapping[str, Answer] = {
    "WRONGTYPE": Answer(
        WrongKeyType, "a configured list is of another type; `ledgerctl doctor` names it"
    ),
    "READONLY": Answer(ReadOnlyReplica, "point redis_url at the primary", passes=True),
    "CROSSSLOT": NOT_AT_HOME,
    "MOVED": Answer(StoreUnavailable, "the cluster is moving slots: try again", passes=True),
    "ASK": Answer(StoreUnavailable, "the cluster is moving slots: try again", passes=True),
    "TRYAGAIN": Answer(StoreUnavailable, "the cluster is moving slots: try again", passes=True),
    "CLUSTERDOWN": Answer(StoreUnavailable, "try again once the cluster is up", passes=True),
    "MASTERDOWN": Answer(
        StoreUnavailable, "the replica has lost its primary: try again", passes=True
    ),
    "LOADING": LOADING,
    "OOM": Answer(StoreBusy, "the server is full: free memory, then try again"),
    "BUSY": Answer(StoreBusy, "the server is running somebody's script: try again"),
    "UNKILLABLE": Answer(StoreBusy, "the server is running somebody's script: try again"),
    "MISCONF": Answer(StoreBusy, "the server cannot save its data: look at its disk"),
    "NOREPLICAS": Answer(StoreBusy, "too few replicas for a write: try again", passes=True),
    "NOPERM": RIGHTS,
    "NOAUTH": Answer(NotPermitted, "give a user and password in redis_url"),
    "WRONGPASS": Answer(NotPermitted, "check the credentials in redis_url"),
    "DENIED": Answer(NotPermitted, "the server takes local connections alone: ask whoever runs it"),
    "REDIRECT": Answer(StoreUnavailable, TRY_AGAIN, passes=True),
}
# Replies whose code is ERR, told by their words.
REDIS_WORDS: tuple[tuple[str, Answer], ...] = (
    (r"unknown (redis )?command|no such command|unknown subcommand", NO_COMMAND),
    (r"not allowed from script|can't run this command|acl failure in script", RIGHTS),
    (r"max number of clients", BUSY),
    (
        r"db index is out of range|invalid db index|select is not allowed in cluster",
        Answer(SettingsError, "end redis_url with /0, or with a database that the server has"),
    ),
    (
        r"without any password configured|no password is set|invalid password|invalid username",
        Answer(NotPermitted, "check the credentials in redis_url"),
    ),
)
# The driver takes these codes off the server's words; by name, so that no driver is loaded here.
CODE_OF = {
    "OutOfMemoryError": "OOM",
    "ReadOnlyError": "READONLY",
    "NoPermissionError": "NOPERM",
    "BusyLoadingError": "LOADING",
    "MovedError": "MOVED",
    "AskError": "ASK",
    "TryAgainError": "TRYAGAIN",
    "ClusterCrossSlotError": "CROSSSLOT",
    "MasterDownError": "MASTERDOWN",
    "ClusterDownError": "CLUSTERDOWN",
    "AuthenticationError": "WRONGPASS",
}


def mongo_answer(code: int | None) -> Answer:
    """Return what an error code of MongoDB comes to."""
    return UNKNOWN if code is None else MONGO.get(code, UNKNOWN)


def redis_answer(error: Exception, words: str) -> tuple[Answer, str]:
    """Return what an error reply of Redis comes to, and its words with their code."""
    names = (kind.__name__ for kind in type(error).__mro__)
    code = next((CODE_OF[name] for name in names if name in CODE_OF), "")
    if code and not words.startswith(code):
        words = f"{code} {words}"
    for pattern, answer in REDIS_WORDS:
        if re.search(pattern, words, re.IGNORECASE):
            return answer, words
    return REDIS.get(code_of(words), UNKNOWN), words


def code_of(words: str) -> str:
    """Return the code of a reply; a script's error on Redis 6.2 carries it further inside."""
    inside = re.search(r"user_script.*?-([A-Z]{2,})\b", words)
    first = re.match(r"-?([A-Z]{2,})\b", words)
    found = inside or first
    return found[1] if found else ""
