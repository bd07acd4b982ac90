"""The table of the servers' error replies: each comes to its exit code, and none to a bug."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from pymongo.client_session import ClientSession

from ledgerctl.config import load
from ledgerctl.errors import ExitCode, LedgerctlError
from ledgerctl.stores.connections import Stores
from ledgerctl.stores.replies import IN_THE_WAY, MONGO, REDIS
from tests.conftest import Client
from tests.faults.test_true_codes import failing
from tests.topologies.fake_redis import answering

SEEN = (6, 7, 89, 9001, 133, 134, 117, 61, 462, 11, 246, 251)
UNHEARD_OF = (4242, 9, 59, 72, 3904800, 11000)
RULES = {code for code, answer in MONGO.items() if answer.error.exit_code == ExitCode.REFUSED}
USAGE = {code for code, answer in MONGO.items() if answer.error.exit_code == ExitCode.USAGE}
NO_FAIL_POINT = {121}  # mongod makes it with its validator alone
CODES = sorted({*MONGO, *SEEN, *UNHEARD_OF} - NO_FAIL_POINT)


def failure(act: Callable[[], object]) -> LedgerctlError:
    """The error that an action ends with."""
    with pytest.raises(LedgerctlError) as caught:
        act()
    return caught.value


@contextmanager
def opened(environment: dict[str, str]) -> Iterator[Stores]:
    """Stores of their own for one reply, after which a client may trust no server for a while."""
    uri = environment["LEDGERCTL_MONGO_URI"] + "&retryReads=false&retryWrites=false"
    with Stores(load(environment=environment | {"LEDGERCTL_MONGO_URI": uri})) as stores:
        stores.mongo.now()
        stores.mongo.outage.limit_s = 0
        yield stores


def expected(code: int) -> ExitCode:
    """The exit code of a MongoDB code that changed nothing."""
    if code in RULES:
        return ExitCode.REFUSED
    return ExitCode.USAGE if code in USAGE else ExitCode.UNAVAILABLE


def test_each_read_that_mongodb_refuses_has_the_exit_code_of_the_table(
    environment: dict[str, str], client: Client
) -> None:
    found = {}
    for code in CODES:
        with opened(environment) as stores, failing(client, "find", errorCode=code):
            found[code] = failure(partial(stores.jobs.find, "job-1")).exit_code
    assert found == {code: expected(code) for code in CODES}


def test_a_transaction_that_mongodb_refuses_is_held_only_by_another_transaction(
    environment: dict[str, str], client: Client
) -> None:
    def body(session: ClientSession) -> None:
        jobs = session.client[environment["LEDGERCTL_DATABASE"]].jobs
        jobs.update_one({"_id": 1}, {"$set": {"x": 1}}, session=session)

    found = {}
    for code in CODES:
        with opened(environment) as stores, failing(client, "update", errorCode=code):
            act = partial(stores.mongo.transaction, "mark a job", body, patience_s=0)
            found[code] = failure(act).exit_code
    held = {code for code, exit_code in found.items() if exit_code is ExitCode.HELD}
    assert held <= IN_THE_WAY
    assert found == {code: found[code] if code in held else expected(code) for code in CODES}


def test_a_write_that_mongodb_refuses_is_unknown_only_where_it_may_be_applied(
    environment: dict[str, str], client: Client
) -> None:
    found, unknown = {}, {code for code, answer in MONGO.items() if answer.may_be_applied}
    for code in CODES:
        with opened(environment) as stores, failing(client, "insert", errorCode=code):
            found[code] = failure(partial(stores.operator_log.begin, {"_id": "one"})).exit_code
    assert found == {
        code: ExitCode.UNKNOWN if code in unknown else expected(code) for code in CODES
    }


REDIS_REPLIES = {
    **{code: int(answer.error.exit_code) for code, answer in REDIS.items()},
    "ERR unknown command 'EVALSHA', with args beginning with:": 6,
    "ERR DB index is out of range": 2,
    "ERR max number of clients reached": 6,
    "ERR Error running script (call to f_1): @user_script:3: @user_script: 3: -OOM command not allowed": 6,
    "ERR Error running script (call to f_1): @user_script:3: @user_script: 3: -READONLY replica": 3,
    "ERR something that nobody has heard of": 6,
    "ODD reply": 6,
}
MOVING = {"MOVED": "MOVED 1 127.0.0.1:1", "ASK": "ASK 1 127.0.0.1:1"}


@pytest.mark.parametrize("reply", REDIS_REPLIES)
@pytest.mark.parametrize("command", ["TYPE", "EVAL"])
def test_what_redis_refuses_has_the_exit_code_of_the_table_and_its_words(
    environment: dict[str, str], reply: str, command: str
) -> None:
    sent = MOVING.get(reply, reply if " " in reply else f"{reply} said the server")
    with answering(sent, to=frozenset({command})) as url:
        settings = load(environment=environment | {"LEDGERCTL_REDIS_URL": url})
        with Stores(settings) as stores:
            stores.queues.client.outage.limit_s = 0
            error = failure(lambda: stores.queues.require_writable("trial", "a", "b"))
    assert int(error.exit_code) == REDIS_REPLIES[reply]
    assert sent.split()[-1] in error.message
