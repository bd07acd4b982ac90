"""Group errors by cause: what changes between two failures is masked, what tells them apart stays.

Pure. Source: contract, section 3, `dead stats`.
"""

import hashlib
import json
import re
from functools import cache, lru_cache
from typing import Final

# Words before a number that tell one cause from another: `HTTP 503`, `exit code 137`, `[Errno 28]`.
_CODE_WORD: Final = r"""
    https? (?:/\d(?:\.\d)?)? | (?:status|exit|err|error|return|response|result|reason|http)? code
    | status | errno | rc | sql[_ ]? (?:state|code) | exit(?:ed)? (?:\ with)? | h?result | ntstatus
    | (?:win|os|cuda|nccl|mysql|curl|http)? [_ ]? err(?:or)? | signal | xid | level | severity
    | returned | got | responded | answered | replied | response
"""
_COUNTED: Final = r"""
    (?:[nuµm]?s|secs?|seconds?|min|mins|minutes?|hrs?|hours?|h|d|days?|[kmgtp]?i?b|bytes?|times?
    |items?|rows?|records?|attempts?|retries|tries|of|files?|jobs?|messages?|requests?|lines?|%)
"""
# Codes that name themselves, in any case: ORA-00001, E11000, AADSTS50058.
_VENDOR: Final = (
    "ORA|TNS|PLS|PLW|RMAN|DPI|DPY|SQL|SQLCODE|DB2|CUDA|NCCL|ERR|WSA|MSG|KB|AADSTS|CVE|SMTP|MDB|MY"
)
# Nouns before a number in capitals that are ids all the same: JOB-00042, GPU-3.
_ID_NOUN: Final = (
    "JOB|ACCT|ACCOUNT|NODE|GPU|CPU|HOST|POD|WORKER|REQ|REQUEST|ID|USER|TASK|ORDER|SHARD|SERVER|RUN|"
    "TENANT|BATCH|PART|CHUNK|DISK|RACK|ZONE|VM|TX|TXN|INV|INVOICE|ITEM|TEST|THREAD|SLOT|CUST|CUSTOMER"
)
_POD: Final = "[bcdfghjklmnpqrstvwxz2456789]"  # what Kubernetes makes suffixes of
_SPAN: Final = r"\d+(?:\.\d+)?\s?(?:[nuµm]?s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?)"
_TEMPORARY: Final = r"""[^\s"':,;)\]]+"""
# Each alternative is reached only where it can begin: a text is mostly the insides of words.
_PARTS: Final = rf"""
    (?<![0-9a-z])(?:
        (?P<code>
          (?:{_CODE_WORD})(?:\ code|\ status)?["']?\s*[:=\#\[(]*\s*["']?
            (?:-?0x[0-9a-f]{{1,8}}|-?\d{{1,6}}|(?=[a-z0-9]*\d)[a-z0-9]{{5}})
            (?![0-9a-z_]|[.,:]\d|\s*{_COUNTED}(?![a-z]))
        | (?:code|status|type|name)["']?\s*[:=]\s*(?:"[a-z][^"\n]*"|'[a-z][^'\n]*')
        | (?:{_VENDOR})[-_ ]?\d{{2,6}}[a-z]?(?![0-9a-z])
        | (?:e\d{{4,6}}|0x[8c][0-9a-f]{{7}})(?![0-9a-z])
        | (?-i:(?!(?:{_ID_NOUN})-)[A-Z]{{2,8}}-\d{{3,5}})(?![0-9a-z])
        )
      | [0-9a-f]{{8}}(?:-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}(?![0-9a-z])
      | (?=[a-z]*\d)(?:
          0x[0-9a-f]+ | [0-9a-f]{{8,}} | (?=[a-z]*\d+[a-z])[0-9a-z]{{8,}}
        )(?![0-9a-z])
      | \[?(?:[0-9a-f]{{0,4}}:){{2,7}}[0-9a-f]{{1,4}}(?![0-9a-z:])\]?(?::\d+)?
      | (?:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*,?\ )?(?:\d{{1,2}}[ /-])?
        (?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*[ /-]\d{{1,4}}
        (?:,?[ :]\d\d:?\d*(?::\d\d)*)?(?:\ \d{{4}})?(?:\ (?:UTC|GMT|[+-]\d{{4}}))?
      | tmp[._-]?(?=[a-z_]*\d|[a-z0-9_]{{8}}(?![a-z0-9_]))[a-z0-9_]{{4,}}
      )
    | (?=\d)(?:
        \d{{4}}[-/]\d\d[-/]\d\d(?:[T ,]+\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?)?
          (?:\s?(?:Z|UTC|GMT|[+-]\d\d:?\d\d))?
      | (?<![\d:])\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?
      | (?<![\d.])\d{{1,3}}(?:\.\d{{1,3}}){{3}}(?:[/:]\d+)?(?![\d.])
      | (?P<status>
          (?:(?<=:\ )|^)[1-5]\d\d(?=\s[a-z]|:|$)(?!\s*{_COUNTED}(?![a-z]))
        | (?<![0-9a-z.:])[45]\d\d(?=\ (?-i:[A-Z][a-z]))
        )
      | (?<![0-9a-z.]){_SPAN}(?:\s?{_SPAN})*(?![0-9a-z])
      | \d+(?:[.,]\d+)*
      )
    | (?=["'`])(?!["'](?:code|status|type|name)["']\s*:)(?: "[^"\n]*" | `[^`\n]*` | (?<!\w)'[^'\n]*'(?!\w) )
    | (?=/)(?: (?:/private)?(?:/var)?/tmp/{_TEMPORARY} | /var/folders/{_TEMPORARY} )
    | (?<=[a-z0-9])-(?:{_POD}{{8,10}}-|(?!https|grpcs|xhtml)){_POD}{{5}}(?![0-9a-z])
    """
_MAIL: Final = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}+@\w[\w-]*(?:\.[\w-]+)*")
_BARE_CODE: Final = re.compile(r"-?\d{1,6}")
_CODES: Final = ("code", "status", "type", "name")
_TEXTS: Final = {"msg", "message", "error", "detail", "details", "description", "reason", "title"}


def masked_error(error: str) -> str:
    """Replace by `#` what changes between two failures of one cause; keep status and error codes."""
    error = error.strip()
    if error[:1] in {"{", "["}:
        try:
            return _compact(_masked(json.loads(error), ""))
        except (ValueError, RecursionError):  # a text that only looks like JSON
            pass
    if _BARE_CODE.fullmatch(error):
        return error
    return "\n".join([_masked_line(line) for line in error.split("\n")])


def error_group(error: str | None) -> str:
    """Name the group of an error: 8 hex digits, whatever its case; none counts as empty."""
    masked = masked_error(error or "").casefold()
    return hashlib.sha256(masked.encode(errors="surrogatepass")).hexdigest()[:8]


@lru_cache(maxsize=4096)  # the lines of tracebacks repeat themselves
def _masked_line(line: str) -> str:
    if "@" in line:
        line = _MAIL.sub("#", line)
    return _parts().sub(_mask, line)


@cache  # its compilation takes longer than most commands' whole start
def _parts() -> "re.Pattern[str]":
    return re.compile(_PARTS, re.VERBOSE | re.IGNORECASE)


def _mask(found: "re.Match[str]") -> str:
    return found[0] if found.lastgroup else "#"


def _masked(value: object, key: str) -> object:
    """Mask a value of a structured error by its key: codes stay, messages are read as texts."""
    if isinstance(value, dict):
        return {name: _masked(one, name.lower()) for name, one in value.items()}
    if isinstance(value, list):
        return [_masked(one, key) for one in value]
    if isinstance(value, str) and key in _TEXTS:
        return masked_error(value)
    return value if value is None or isinstance(value, bool) or key.endswith(_CODES) else "#"


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
