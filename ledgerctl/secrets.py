"""Secrets: kept out of every printed form, and taken out of other people's messages."""

import re
from collections.abc import Iterable
from typing import NoReturn
from urllib.parse import unquote, unquote_plus

from ledgerctl.addresses import Address, split

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
    query = "&".join(_shown_option(name, value) for name, value in address.options)
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


def _shown_option(name: str, value: str) -> str:
    return f"{name}={value if _is_shown(name) else MASK}"


def _is_shown(name: str) -> bool:
    return name.lower() in SHOWN_OPTIONS


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
        forms += [re.escape(form) for form in (_python_escape(character), _json_escape(character))]
    return f"(?:{'|'.join(forms)})"


def _python_escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _json_escape(character: str) -> str:
    pairs = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(rf"\u{pairs[start : start + 4]}" for start in range(0, len(pairs), 4))
