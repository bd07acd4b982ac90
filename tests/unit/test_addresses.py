"""Every form of redis_url, as it is checked and as the store opens it."""

import pytest

from ledgerctl.addresses import BadValue, RedisPlace, check_redis, redis_database, redis_place

SENTINEL = (
    "redis+sentinel://ops:p%40ss@h1,[::1]:26380/jobs/3?sentinel_username=s&sentinel_password=q%2F"
)


@pytest.mark.parametrize(
    ("url", "driver_url"),
    [
        ("redis://h:1/2", "redis://h:1/2"),
        ("valkey://u:p@h", "redis://u:p@h"),
        ("valkeys://h/1?ssl_ca_certs=/a", "rediss://h/1?ssl_ca_certs=/a"),
        ("rediss://h", "rediss://h"),
        ("unix:///run/redis.sock?db=4", "unix:///run/redis.sock?db=4"),
    ],
)
def test_a_node_is_opened_by_the_drivers_spelling_of_its_address(url: str, driver_url: str) -> None:
    check_redis(url)
    assert redis_place(url) == RedisPlace(driver_url, "", (), {})


def test_a_sentinel_address_names_hosts_service_database_and_both_logins() -> None:
    check_redis(SENTINEL)
    assert redis_place(SENTINEL) == RedisPlace(
        "redis://ops:p%40ss@h1/3?",
        "jobs",
        (("h1", 26379), ("::1", 26380)),
        {"username": "s", "password": "q/"},
    )
    assert redis_database(SENTINEL) == 3


def test_a_sentinel_address_with_tls_is_opened_with_tls() -> None:
    url = "rediss+sentinel://h1:1,h2:2/jobs?ssl_ca_certs=/a"
    check_redis(url)
    assert redis_place(url).driver_url == "rediss://h1:1/0?ssl_ca_certs=/a"
    assert redis_database(url) == 0


@pytest.mark.parametrize(
    "url",
    [
        "redis+sentinel://h1:26379",
        "redis+sentinel://h1:26379/",
        "redis+sentinel://h1,/jobs",
        "redis+sentinel:///jobs",
        "redis+sentinel://h1/jobs/x",
        "redis+sentinel://h1/jobs?sentinel_user=a",
        "redis://h1?sentinel_username=a",
        "valkey://h1/x",
        "keydb://h1",
    ],
)
def test_what_names_no_service_or_has_an_unknown_option_is_refused(url: str) -> None:
    with pytest.raises(BadValue):
        check_redis(url)
