"""No secret is shown, however it is spelled; addresses are checked and never quoted."""

import copy
import json
import pickle
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

from ledgerctl.addresses import (
    BadValue,
    Secret,
    check_mongo,
    check_redis,
    display,
    holds_credentials,
    redact,
    without_credentials,
)

MONGO = Secret("mongodb://ops:s3cr3t@db1:27017,db2/ledger?replicaSet=rs0")
REDIS = Secret("rediss://:s3cr3t@queue:6380/2")


@pytest.mark.parametrize("show", [repr, str, "{}".format, "{:>30}".format, "{!r}".format])
def test_no_printed_form_of_a_secret_shows_it(show: Callable[[object], str]) -> None:
    assert "s3cr3t" not in show(MONGO)
    assert "s3cr3t" not in f"{[MONGO, {'uri': REDIS}]}"


def test_a_secret_is_copied_as_itself_and_never_pickled_or_turned_into_json() -> None:
    assert copy.deepcopy(MONGO) is MONGO
    assert copy.copy(MONGO) is MONGO
    with pytest.raises(TypeError):
        pickle.dumps(MONGO)
    with pytest.raises(TypeError):
        json.dumps({"uri": MONGO})


def test_a_secret_is_revealed_only_when_asked_and_equals_its_like() -> None:
    assert MONGO.reveal().startswith("mongodb://ops:s3cr3t@")
    assert Secret("a") == Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert len({Secret("a"), Secret("a")}) == 1


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        (MONGO, "mongodb://***@db1:27017,db2/ledger?replicaSet=rs0"),
        (REDIS, "rediss://***@queue:6380/2"),
        (Secret("redis://127.0.0.1:6379/0"), "redis://127.0.0.1:6379/0"),
        (Secret("unix://u:s3cr3t@/run/redis.sock?db=1"), "unix://***@/run/redis.sock?db=1"),
        (Secret("redis://h/0?password=s3cr3t&db=2"), "redis://h/0?password=***&db=2"),
        (
            Secret("mongodb://h/?authMechanismProperties=AWS_SESSION_TOKEN:s3cr3t&tls=true"),
            "mongodb://h/?authMechanismProperties=***&tls=true",
        ),
        (
            Secret("mongodb://h/?tlsCertificateKeyFilePassword=s3cr3t"),
            "mongodb://h/?tlsCertificateKeyFilePassword=***",
        ),
    ],
)
def test_display_keeps_the_place_and_hides_the_credentials(uri: Any, shown: str) -> None:
    assert display(uri) == shown


PASSWORDS = [
    "s3cr3t",
    "p@ss/w0rd:s3cr3t",
    "s3cr3t with space+plus%",
    "ключ-s3cr3t",
    "it's\\\"s3cr3t",
]


@pytest.mark.parametrize("password", PASSWORDS)
@pytest.mark.parametrize("encode", [lambda text: quote(text, safe=""), quote_plus])
@pytest.mark.parametrize(
    "spell",
    [
        str,
        repr,
        json.dumps,
        ascii,
        quote,
        quote_plus,
        lambda text: quote(text, safe=""),
        lambda text: quote(text, safe="").lower(),
        lambda text: quote(quote(text, safe=""), safe=""),
        lambda text: "".join(f"%{byte:02X}" for byte in text.encode()),
    ],
)
def test_redact_finds_a_password_in_every_spelling(
    password: str, encode: Callable[[str], str], spell: Callable[[str], str]
) -> None:
    secret = Secret(f"mongodb://ops:{encode(password)}@db1/ledger")
    spelled = spell(password)
    text = redact(f"auth failed for {spelled}: {spell(secret.reveal())}", [secret])
    assert text.startswith("auth failed for ")
    assert "s3cr3t" not in text
    assert spelled.strip("'\"") not in text
    assert encode(password) not in text


def test_redact_masks_the_whole_address_the_user_information_and_secret_options() -> None:
    secret = Secret("redis://h/0?password=s3cr3t")
    text = f"{MONGO.reveal()} ops:s3cr3t@db1 AUTH s3cr3t ?password=s3cr3t"
    assert redact(text, [MONGO, secret]) == "*** ***@db1 AUTH *** ?password=***"


def test_redact_leaves_text_without_secrets_alone() -> None:
    text = "db1:27017: connection refused"
    assert redact(text, [MONGO, REDIS, Secret("redis://127.0.0.1:6379/0")]) == text


def test_redact_masks_a_session_token_and_leaves_harmless_options_alone() -> None:
    secret = Secret(
        "mongodb://h/?maxIdleTimeMS=5000&authMechanismProperties="
        "SERVICE_NAME:mongodb,AWS_SESSION_TOKEN:s3cr3t%2Fx"
    )
    text = "mongodb took 5000 ms; token s3cr3t/x"
    assert redact(text, [secret]) == "mongodb took 5000 ms; token ***"


def test_redact_masks_a_short_password_only_where_it_is_a_word() -> None:
    text = redact("auth as a: a bad auth", [Secret("redis://:a@h/0")])
    assert text == "auth as ***: *** bad auth"


def test_text_of_unknown_origin_loses_what_stands_before_an_at_sign() -> None:
    shown = without_credentials("/mongodb:/ops:s3cr3t@h/db and redis://:s3cr3t@h")
    assert shown == "/mongodb:/***@h/db and redis://***@h"


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ('mongo_uri = "mongodb://ops:s3cr3t@h/db"', True),
        ('redis_url = "redis://h/0?password=x"', True),
        ('mongo_uri = "mongodb://h/db?replicaSet=rs"', False),
        ('database = "ledger"', False),
    ],
)
def test_credentials_are_found_in_a_files_text(text: str, held: bool) -> None:
    assert holds_credentials(text) is held


@pytest.mark.parametrize(
    "uri",
    [
        "mongodb://127.0.0.1:27017",
        "mongodb://h1,h2:27018/?replicaSet=rs0",
        "mongodb://ops:p%40ss%2Fw0rd@h/db?authSource=admin",
        "mongodb://ops@h/db",
        "mongodb://[::1]:27017/ledger",
        "mongodb://%2Ftmp%2Fmongod.sock/ledger",
        "mongodb+srv://ops:x@cluster.example/ledger?w=majority",
        "mongodb://h/?authMechanismProperties=SERVICE_REALM:a@b",
    ],
)
def test_a_usable_mongodb_uri_is_taken(uri: Any) -> None:
    check_mongo(uri)


@pytest.mark.parametrize(
    "url",
    [
        "redis://127.0.0.1:6379/0",
        "redis://h",
        "redis://:pw@h:6379",
        "redis://ops:p:w@h/15",
        "rediss://h:6380/0?ssl_cert_reqs=required",
        "unix:///run/valkey.sock?db=3",
        "unix:///run/odd@name.sock",
        "unix://ops:pw@/run/valkey.sock",
        "redis://[::1]:6379/0",
    ],
)
def test_a_usable_redis_url_is_taken(url: str) -> None:
    check_redis(url)


@pytest.mark.parametrize(
    ("check", "uri"),
    [
        (check_redis, "redis://:s3#cr3t@h:6379/0"),
        (check_redis, "redis://:p#ss@h:6379/0"),
        (check_redis, "redis://:p/ss@h:6379/0"),
        (check_redis, "redis://:p?ss@h:6379/0"),
        (check_redis, "redis://:123?ss@h:6379/0"),
        (check_redis, "redis://:123/4@h:6379/0"),
        (check_redis, "redis://:p@ss@h:6379/0"),
        (check_redis, "redis://:50%zz@h:6379/0"),
        (check_redis, "redis://:p ss@h:6379/0"),
        (check_redis, "redis://:p%ff@h:6379/0"),
        (check_redis, "redis://:p[ss]@h:6379/0"),
        (check_redis, "redis://:p\u2100ss@h:6379/0"),
        (check_mongo, "mongodb://ops:p[ss@h:6379/0"),
        (check_redis, "unix://:p/ss@/run/valkey.sock"),
        (check_redis, "redis://s3cr3t:pw"),
        (check_mongo, "mongodb://ops:p@ss/w0rd@h/db"),
        (check_mongo, "mongodb://ops:50%zz@h/db"),
        (check_mongo, "mongodb://ops:p@ss@h/db"),
        (check_mongo, "mongodb://ops:p:ss@h/db"),
        (check_mongo, "mongodb://ops:p/ss@h/db"),
        (check_mongo, "mongodb://ops:p#ss@h/db"),
        (check_mongo, "mongodb://ops:p?ss@h/db"),
        (check_mongo, "mongodb://ops:12?ss@h/db"),
        (check_mongo, "mongodb://ops:12/34@h/db"),
        (check_mongo, "mongodb://ops:p@ss?w=@h/db?w=1"),
        (check_mongo, "mongodb://ops:12/p?ss@h/db"),
        (check_mongo, "mongodb://ops:p\nss@h/db"),
        (check_mongo, "mongodb://ops:s3cr3t"),
    ],
)
def test_an_unescaped_password_asks_for_percent_encoding_and_is_not_quoted(
    check: Callable[[str], None], uri: Any
) -> None:
    with pytest.raises(BadValue) as caught:
        check(uri)
    message = f"{caught.value} {caught.value.hint}"
    assert "percent-encode the password" in message
    assert not re.search(r"p.?ss|w0rd|50%|%zz|s3|cr3t", message.replace("password", ""))
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    ("check", "uri", "why"),
    [
        (check_redis, "redis://h:6379/abc", "names a database that is not a number"),
        (check_redis, "redis://h:6379/0/1", "names a database that is not a number"),
        (check_redis, "redis://h?db=abc", "names a database that is not a number"),
        (check_redis, "redis://h:99999/0", "host or port"),
        (check_redis, "redis://h:0/0", "host or port"),
        (check_redis, "redis://h/0?decode_responses=true", "option that may not be set"),
        (check_redis, "redis://h/0?retry_on_timeout=true", "option that may not be set"),
        (check_redis, "redis://h/0?ssl_cert_reqs=none", "option that may not be set"),
        (check_redis, "rediss://h/0?ssl_cert_reqs=some", "none of none, optional and required"),
        (check_redis, "http://h", "does not begin with redis://"),
        (check_redis, "unix://run/valkey.sock", "absolute path"),
        (check_redis, "redis://h/0#1", "`#`"),
        (check_mongo, "", "does not begin with mongodb://"),
        (check_mongo, "localhost:27017", "does not begin with mongodb://"),
        (check_mongo, "mongodb://", "names no host"),
        (check_mongo, "mongodb://h1,,h2", "names no host"),
        (check_mongo, "mongodb://h:port", "host or port"),
        (check_mongo, "mongodb://:pw@h", "without a user name"),
        (check_mongo, "mongodb://h/a/b", "names a database with a character"),
        (check_mongo, "mongodb://h/db?replicaSet", "not name=value"),
        (check_mongo, "mongodb+srv://h:27017", "more than one host, or a port"),
        (check_mongo, "mongodb+srv://h1,h2", "more than one host, or a port"),
    ],
)
def test_an_address_that_cannot_work_says_why(
    check: Callable[[str], None], uri: Any, why: str
) -> None:
    with pytest.raises(BadValue, match=re.escape(why)):
        check(uri)
