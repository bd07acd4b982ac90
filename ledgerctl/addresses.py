"""Addresses of the stores: checked without a driver; their secrets are kept out of printed forms."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NoReturn
from urllib.parse import unquote, unquote_plus

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


MASK = "***"

# Options of an address that say nothing secret; the value of any other is hidden.
SHOWN_OPTIONS = frozenset(
    {
        "appname", "authmechanism", "authsource", "client_name", "compressors",
        "connecttimeoutms", "db", "directconnection", "journal", "loadbalanced", "maxpoolsize",
        "readconcernlevel", "readpreference", "replicaset", "retryreads", "retrywrites",
        "serverselectiontimeoutms", "sockettimeoutms", "ssl", "ssl_ca_certs", "ssl_ca_path",
        "ssl_cert_reqs", "ssl_certfile", "ssl_check_hostname", "ssl_keyfile", "tls", "tlscafile",
        "tlscertificatekeyfile", "w", "wtimeoutms",
    }
)  # fmt: skip

# Of the options that are hidden, those whose values must vanish from any text: the value of a
# harmless one that nobody listed, such as 5000, must not take figures out of messages.
_VANISHING_OPTION = "(?i)password|properties|secret|token"
_PUBLIC_PROPERTIES = frozenset(
    {"CANONICALIZE_HOST_NAME", "ENVIRONMENT", "SERVICE_NAME", "SERVICE_REALM", "TOKEN_RESOURCE"}
)

# Below this, a bare match would mask single letters in the middle of words.
_SHORT_CHARACTERS = 4

_CREDENTIALS = r"(:/{1,2})[^\s'\"]*@"


class Secret:
    """Provide a text that no printed form shows; only `reveal` gives it away.

    repr, str, format and f-strings show a mask; pickling is refused and a copy is itself.
    """

    __slots__ = ("__text",)

    def __init__(self, text: str) -> None:
        self.__text = text

    def reveal(self) -> str:
        """Return the text itself, for the driver alone."""
        return self.__text

    def __repr__(self) -> str:
        return f"Secret({MASK})"

    def __str__(self) -> str:
        return MASK

    def __format__(self, format_spec: str) -> str:
        return format(MASK, format_spec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self.__text == other.reveal()

    def __hash__(self) -> int:
        return hash(self.__text)

    def __copy__(self) -> "Secret":
        return self

    def __deepcopy__(self, memo: object) -> "Secret":
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not pickled")


def display(secret: Secret) -> str:
    """Return the address with scheme, hosts, port and path; credentials and secret options are masked."""
    address = split(secret.reveal())
    credentials = f"{MASK}@" if address.user_info else ""
    query = "&".join(
        f"{name}={value if name.lower() in SHOWN_OPTIONS else MASK}"
        for name, value in address.options
    )
    shown = f"{address.scheme}://{credentials}{address.hosts}{address.path}"
    return f"{shown}?{query}" if query else shown


def redact(text: str, secrets: Iterable[Secret]) -> str:
    """Return the text without any of these addresses' secrets, however they are spelled in it.

    Masked are the whole address, `user:password`, the password and the secret options, each
    written plain, percent-encoded in whole or in part (once or twice), or escaped as in a repr.
    A password of under four characters is masked where it stands as a word.
    """
    for secret in secrets:
        for hidden in _hidden_texts(secret.reveal()):
            text = re.sub(_any_spelling(hidden), MASK, text)
    return text


def without_credentials(text: str) -> str:
    """Return the text with whatever stands before the `@` of a URI masked; for text of unknown origin."""
    return re.sub(_CREDENTIALS, rf"\1{MASK}@", text)


def holds_credentials(text: str) -> bool:
    """Tell whether an address with credentials, or with an option that is hidden, stands in the text."""
    addresses = (split(found) for found in re.findall(r"[a-z+]+://[^\s'\"]+", text))
    return any(address.user_info or _secret_values(address) for address in addresses)


def _secret_values(address: Address) -> list[str]:
    values = [
        value for name, value in address.options if value and re.search(_VANISHING_OPTION, name)
    ]
    properties = [part.partition(":") for value in values for part in value.split(",")]
    return values + [
        value for name, _, value in properties if value and name not in _PUBLIC_PROPERTIES
    ]


def _hidden_texts(uri: str) -> list[str]:
    """Tell what must not be seen, longest first so that no mask leaves half of a longer one."""
    address = split(uri)
    parts = [address.password, *_secret_values(address)]
    if address.user_info or any(parts):
        parts += [uri, address.user_info]
    decoded = [decode(part) for part in parts for decode in (unquote, unquote_plus)]
    return sorted({part for part in (*parts, *decoded) if part}, key=len, reverse=True)


def _any_spelling(text: str) -> str:
    pattern = "".join(_spellings(character) for character in text)
    if len(text) < _SHORT_CHARACTERS:
        return rf"(?<![A-Za-z0-9]){pattern}(?![A-Za-z0-9])"
    return pattern


def _spellings(character: str) -> str:
    encoded = "".join(f"%{byte:02x}" for byte in character.encode("utf-8", "surrogatepass"))
    forms = [f"(?i:{encoded.replace('%', '%25')})", f"(?i:{encoded})", re.escape(character)]
    if character == " ":
        forms.append(r"\+")
    if character in "\\'\"":
        forms.insert(0, r"\\" + re.escape(character))
    if not character.isascii():
        forms += [
            re.escape(form)
            for form in (character.encode("unicode_escape").decode(), _json_escape(character))
        ]
    return f"(?:{'|'.join(forms)})"


def _json_escape(character: str) -> str:
    pairs = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(rf"\u{pairs[start : start + 4]}" for start in range(0, len(pairs), 4))
