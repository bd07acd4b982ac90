"""What a failover undid is told as such by the commands that look at it afterwards."""

from redis import Redis

from tests.conftest import Runner
from tests.dead_letters import DEAD, letter
from tests.topologies.machines import Cluster, Sentinels


def checks(run: Runner, url: str) -> dict[str, str]:
    """How each of the doctor's checks of Redis ended at this address."""
    document = run("doctor", "-o", "json", env={"LEDGERCTL_REDIS_URL": url}).json()
    return {one["id"]: one["status"] for one in document["checks"] if one["id"][:5] == "redis"}


def test_letters_that_a_failover_put_back_are_already_back_and_it_is_said(
    redis_client: Redis, run: Runner
) -> None:
    letters = [letter(number) for number in range(3)]
    redis_client.rpush(DEAD, *letters)
    moved = run("dead", "release", "--all", "--reason", "x", "--yes", "-o", "json").json()
    redis_client.flushall()  # the new primary has the list as it was before
    redis_client.rpush(DEAD, *letters)
    no_notes = f"this server has no notes of operation {moved['operation_id']}"
    for words in (("dead", "show", "job-000001"), ("log", "outcome", moved["operation_id"])):
        assert no_notes in run(*words).err
    done = run("dead", "restore", moved["operation_id"], "--yes", "-o", "json")
    said = done.json()
    assert (done.code, said["restored"], said["already_back"], said["gone"]) == (0, 0, 3, 0)
    assert no_notes in said["notes"]
    assert "a failover undid the move" in str(said["notes"])
    assert redis_client.lrange(DEAD, 0, -1) == letters


def test_an_operation_whose_notes_are_there_is_no_news(redis_client: Redis, run: Runner) -> None:
    redis_client.rpush(DEAD, letter(1))
    moved = run("dead", "release", "--all", "--reason", "x", "--yes", "-o", "json").json()
    restore = ("dead", "restore", moved["operation_id"], "--yes")
    for words in (("dead", "show", "job-000001"), restore, ("dead", "show", "job-000001"), restore):
        assert "no notes" not in run(*words).err


def test_the_doctor_warns_of_a_failover_that_loses_moves(sentinels: Sentinels, run: Runner) -> None:
    sentinels.settle()
    assert checks(run, sentinels.url)["redis.failover"] == "warn"
    for one in sentinels.nodes:
        one.ask("CONFIG", "SET", "min-replicas-to-write", "1")
    try:
        assert checks(run, sentinels.url)["redis.failover"] == "ok"
    finally:
        for one in sentinels.nodes:
            one.ask("CONFIG", "SET", "min-replicas-to-write", "0")


def test_the_doctor_fails_wherever_a_queue_command_would(cluster: Cluster, run: Runner) -> None:
    for at in (0, 5):
        found = checks(run, cluster.url(at))
        assert (found["redis.role"], found["redis.types"]) == ("fail", "fail")
