"""Database addresses: taken apart and checked without a driver, and never quoted in an error."""

import re
from dataclasses import dataclass
from urllib.parse import unquote

ESCAPE_HINT = (
    "percent-encode the password (and the user name): "
    "@ is %40, # is %23, / is %2F, : is %3A, ? is %3F, % is %25, a space is %20"
)

# Others are refused: a driver lets the URL win over what keeps a command safe and bounded (a
# resend after a timeout, decoded replies, a wait of minutes).
REDIS_OPTIONS = frozenset({"client_name", "db", "password", "username"})
REDIS_TLS_OPTIONS = frozenset(
    {"ca_certs", "ca_path", "cert_reqs", "certfile", "check_hostname", "keyfile", "password"}
)
SENTINEL_OPTIONS = frozenset({"sentinel_username", "sentinel_password"})
SENTINEL_SCHEMES = frozenset({"redis+sentinel", "rediss+sentinel"})
SENTINEL_PORT = 26379
TLS_SCHEMES = frozenset({"rediss", "valkeys", "rediss+sentinel"})
REDIS_SCHEMES = ("redis", "rediss", "unix", "valkey", "valkeys", *sorted(SENTINEL_SCHEMES))
CERTIFICATE_CHECKS = frozenset({"none", "optional", "required"})

_BLANK = r"[\s\x00-\x1f\x7f-\x9f]"
_STRAY_PERCENT = r"%(?![0-9A-Fa-f]{2})"
_OPTION = r"[A-Za-z][A-Za-z0-9_]*="
_DIGITS = r"[0-9]{1,9}"
_HOST = r"(\[[0-9A-Fa-f:.%A-Za-z]+\]|[^\[\]:]*)(?::([0-9]{1,5}))?"
_PORT_MAX = 65535


class BadValue(ValueError):
    """Report why a value cannot be used, and what to do; holds no part of the value."""

    def __init__(self, why: str, hint: str = "") -> None:
        super().__init__(why)
        self.hint = hint


@dataclass(frozen=True, repr=False)
class Address:
    """Hold an address in its parts, each as it was written (still percent-encoded)."""

    scheme: str
    user_info: str
    hosts: str
    path: str
    query: str

    @property
    def password(self) -> str:
        """Return the part of the user information after its first colon."""
        return self.user_info.partition(":")[2]

    @property
    def options(self) -> tuple[tuple[str, str], ...]:
        """Return the query's names and values, in order."""
        parts = [part.partition("=") for part in re.split("[&;]", self.query) if part]
        return tuple((name, value) for name, _, value in parts)


def split(uri: str) -> Address:
    """Return the parts of any text that looks like a URI; nothing is checked."""
    scheme, _, rest = uri.partition("://")
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    user_info, _, hosts = authority.rpartition("@")
    path, _, query = rest[len(authority) :].partition("?")
    return Address(scheme, user_info, hosts, path, query)


def check_mongo(uri: str) -> None:
    """Raise BadValue unless this is a usable `mongodb://` or `mongodb+srv://` URI."""
    address = _address(uri, ("mongodb", "mongodb+srv"), "mongodb://HOST:PORT")
    if ":" in address.password:
        raise _needs_escape()
    if address.user_info.startswith(":"):
        raise BadValue("has a password without a user name", ESCAPE_HINT)
    hosts = address.hosts.split(",")
    for host in hosts:
        _check_host(host, optional=False)
    if address.scheme == "mongodb+srv" and (len(hosts) > 1 or ":" in hosts[0]):
        raise BadValue("names more than one host, or a port, which mongodb+srv cannot have")
    if re.search(r'[/\\ "$]', unquote(address.path[1:])):
        raise BadValue("names a database with a character that no database has", ESCAPE_HINT)


def check_redis(url: str) -> None:
    """Raise BadValue unless this is a usable address of Redis or Valkey, or of their Sentinel."""
    address = _address(url, REDIS_SCHEMES, "redis://HOST:PORT/0")
    known = set(REDIS_OPTIONS)
    if address.scheme == "unix":
        _check_socket(address)
    elif address.scheme in SENTINEL_SCHEMES:
        known |= SENTINEL_OPTIONS
        _check_sentinel(address)
    else:
        _check_host(address.hosts, optional=True)
        _check_database(address.path[1:])
    if address.scheme in TLS_SCHEMES:
        known |= {f"ssl_{name}" for name in REDIS_TLS_OPTIONS}
    for name, value in address.options:
        if name not in known:
            raise BadValue(
                "has an option that may not be set here", f"may be set: {', '.join(sorted(known))}"
            )
        if name == "db":
            _check_database(value)
        elif name == "ssl_cert_reqs" and value not in CERTIFICATE_CHECKS:
            raise BadValue("has an ssl_cert_reqs that is none of none, optional and required")


def mongo_database(uri: str) -> str:
    """Return the database that a checked MongoDB URI names; empty without one, and for `admin`."""
    name = unquote(split(uri).path[1:])
    return "" if name == "admin" else name


def redis_database(url: str) -> int:
    """Return the number of the database that a checked Redis address names."""
    address = split(url)
    path = "" if address.scheme == "unix" else address.path[1:]
    if address.scheme in SENTINEL_SCHEMES:
        path = path.partition("/")[2]
    return int(dict(address.options).get("db") or path or 0)


@dataclass(frozen=True, repr=False)
class RedisPlace:
    """Hold a checked Redis address as the store opens it; `service` is empty without Sentinel."""

    driver_url: str  # of the node, or of the first sentinel's host: scheme, user, options
    service: str
    sentinels: tuple[tuple[str, int], ...]
    sentinel_login: dict[str, str]


def redis_place(url: str) -> RedisPlace:
    """Return a checked Redis address in the driver's own spelling, Sentinel's part beside it."""
    address = split(url)
    scheme = "rediss" if address.scheme in TLS_SCHEMES else "redis"
    if address.scheme not in SENTINEL_SCHEMES:
        kept = url.partition("://")[2]
        return RedisPlace(f"{'unix' if address.scheme == 'unix' else scheme}://{kept}", "", (), {})
    hosts = [match for host in address.hosts.split(",") if (match := re.fullmatch(_HOST, host))]
    own = {name for name, _ in address.options} & SENTINEL_OPTIONS
    query = "&".join(f"{name}={value}" for name, value in address.options if name not in own)
    login = f"{address.user_info}@" if address.user_info else ""
    return RedisPlace(
        f"{scheme}://{login}{hosts[0][0]}/{redis_database(url)}?{query}",
        unquote(address.path[1:].partition("/")[0]),
        tuple((one[1].strip("[]"), int(one[2] or SENTINEL_PORT)) for one in hosts),
        {
            name.removeprefix("sentinel_"): unquote(value)
            for name, value in address.options
            if name in own
        },
    )


def _address(uri: str, schemes: tuple[str, ...], example: str) -> Address:
    address = split(uri)
    if "://" not in uri or address.scheme not in schemes:
        begins = " or ".join(f"{scheme}://" for scheme in schemes)
        raise BadValue(f"does not begin with {begins}", f"write it as {example}")
    if re.search(_BLANK, uri):
        raise BadValue("has a space, a line break or a control character in it", ESCAPE_HINT)
    if _hides_a_password(address) or not _decodes(address.user_info):
        raise _needs_escape()
    if "#" in uri:
        raise BadValue("has a `#` in it, which ends an address", ESCAPE_HINT)
    if not all(re.match(_OPTION, part) for part in re.split("[&;]", address.query) if part):
        raise BadValue("has an option after `?` that is not name=value", ESCAPE_HINT)
    return address


def _hides_a_password(address: Address) -> bool:
    """Tell whether an `@` stands where only an unescaped password can have put it."""
    if "@" in address.user_info:
        return True
    if address.scheme == "unix" and (address.user_info or not address.hosts):
        return False  # a socket's path may hold any character
    if "@" in address.query and ("?" in address.query or not address.path):
        return True
    return "@" in address.path


def _decodes(text: str) -> bool:
    """Tell whether the user information is what RFC 3986 lets it be: urllib, for one, quotes a part of
    a password that holds a bracket or a character such as ℀ (which normalizes to `a/c`)."""
    if re.search(_STRAY_PERCENT, text) or not text.isascii() or "[" in text or "]" in text:
        return False
    try:
        unquote(text, errors="strict")
    except UnicodeDecodeError:
        return False
    return True


def _needs_escape() -> BadValue:
    return BadValue("has a character in its password that must be escaped", ESCAPE_HINT)


def _check_host(host: str, *, optional: bool) -> None:
    match = re.fullmatch(_HOST, host)
    if match is None or not 0 < int(match[2] or "1") <= _PORT_MAX:
        raise BadValue(
            "has a host or port that cannot be read (a port is a number from 1 to 65535)",
            f"write HOST:PORT; if part of the password stands there, {ESCAPE_HINT}",
        )
    if not (match[1] or optional):
        raise BadValue("names no host", "write it as mongodb://HOST:PORT")


def _check_socket(address: Address) -> None:
    if address.hosts or len(address.path) < len("/x"):
        raise BadValue(
            "does not name a socket's absolute path",
            f"write unix:///PATH or unix://USER:PASSWORD@/PATH, and {ESCAPE_HINT}",
        )


def _check_sentinel(address: Address) -> None:
    for host in address.hosts.split(","):
        _check_host(host, optional=False)
    service, _, database = address.path[1:].partition("/")
    if not service:
        raise BadValue(
            "names no Sentinel service", "write it as redis+sentinel://HOST:26379,HOST/SERVICE/0"
        )
    _check_database(database)


def _check_database(text: str) -> None:
    if text and not re.fullmatch(_DIGITS, text):
        raise BadValue(
            "names a database that is not a number",
            f"end it with /0; if part of the password stands there, {ESCAPE_HINT}",
        )
