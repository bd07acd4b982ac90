"""Write the completion files from the command table: words are static, values are looked up.

No file starts Python for a static word. Ids come from `ledgerctl --complete KIND WORDS…`, which
answers from a cache or within a second, and never prints an error.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from ledgerctl.cli.command_table import FILE, FLAG, CommandEntry, OptionEntry, command_table
from ledgerctl.cli.nouns import NOUNS


def completion_file(shell: str) -> str:
    """Return the whole completion file of a shell."""
    return "\n".join(WRITERS[shell](command_table())) + "\n"


def by_noun(table: Iterable[CommandEntry]) -> dict[str, list[CommandEntry]]:
    """Return the commands of each noun that has any below it."""
    nouns: dict[str, list[CommandEntry]] = {}
    for entry in table:
        if " " in entry.path:
            nouns.setdefault(entry.path.split()[0], []).append(entry)
    return nouns


def own(entry: CommandEntry) -> list[OptionEntry]:
    """Return the options that not every command has."""
    return [option for option in entry.options if not option.common]


def common(table: tuple[CommandEntry, ...]) -> list[OptionEntry]:
    """Return the options of every command."""
    return [option for option in table[0].options if option.common]


def spellings(options: Iterable[OptionEntry]) -> str:
    """Return the long spellings, separated by blanks."""
    return " ".join(name for option in options for name in option.names if name.startswith("--"))


def kinds(options: Iterable[OptionEntry]) -> str:
    """Return the options that take a value as `--name=kind` words."""
    return " ".join(
        f"{name}={option.kind}"
        for option in options
        if option.kind != FLAG
        for name in option.names
    )


# bash

BASH_HEAD: Final = """\
# Completion of ledgerctl for bash; written by `ledgerctl completion show bash`.

_ledgerctl_of() { # what a command takes: its options, those with a value, the kind of its words
  case $1 in"""

BASH_REST: Final = """\
    *) return 1 ;;
  esac
}

_ledgerctl_values() { # the values of a kind that begin with what was typed
  local kind=$1 typed=$2 value
  case $kind in
    @file)
      compopt -o filenames 2>/dev/null
      while IFS= read -r value; do COMPREPLY+=("$value"); done < <(compgen -f -- "$typed") ;;
    @*)
      while IFS= read -r value; do
        [[ $value == "$typed"* ]] && COMPREPLY+=("$value")
      done < <(ledgerctl --complete "${kind#@}" "${COMP_WORDS[@]:1}" 2>/dev/null </dev/null)
      if ((${#COMPREPLY[@]} < 2)) || [[ ${COMP_TYPE-} == 37 || ${COMP_TYPE-} == 42 ]]; then
        COMPREPLY=("${COMPREPLY[@]%%$'\\t'*}") # what is inserted has no description
      else
        COMPREPLY=("${COMPREPLY[@]/$'\\t'/  }")
      fi ;;
    -) ;;
    *)
      for value in ${kind//,/ }; do [[ $value == "$typed"* ]] && COMPREPLY+=("$value"); done ;;
  esac
}

_ledgerctl_complete() {
  local IFS=$' \\t\\n' words=() word joined='' raw='' i nouns commands path
  local options values plain kind typed entry previous
  COMPREPLY=()
  for ((i = 0; i <= COMP_CWORD; i++)); do # bash splits words at = and :, put them together again
    word=${COMP_WORDS[i]}
    if ((${#words[@]} > 0)) && { [[ $word == [=:] ]] || [[ $joined == [=:] ]]; }; then
      words[-1]+=$word
    else
      words+=("$word")
    fi
    joined=${word: -1}
  done
  typed=${words[-1]}
  raw=${COMP_WORDS[COMP_CWORD]}
  [[ $raw == [=:] ]] && raw=''
  if ((${#words[@]} == 2)); then
    _ledgerctl_values "$_ledgerctl_nouns" "$typed"
    return
  fi
  path=${words[1]}
  commands=$(_ledgerctl_commands "$path")
  if [[ -n $commands ]]; then
    if ((${#words[@]} == 3)); then
      _ledgerctl_values "$commands" "$typed"
      return
    fi
    path+=" ${words[2]}"
  fi
  _ledgerctl_of "$path" || return 0
  options+=" $_ledgerctl_common"
  values+=" $_ledgerctl_common_values"
  previous=${words[-2]}
  if [[ $typed == --*=* ]]; then
    previous=${typed%%=*}
    typed=${typed#*=}
  fi
  kind=''
  if [[ $previous == -* ]]; then
    for entry in $values; do
      [[ ${entry%%=*} == "$previous" ]] && kind=${entry#*=}
    done
  fi
  if [[ -n $kind ]]; then
    _ledgerctl_values "$kind" "$typed"
  elif [[ $typed == -* ]]; then
    for word in $options; do [[ $word == "$typed"* ]] && COMPREPLY+=("$word"); done
    return
  else
    _ledgerctl_values "$plain" "$typed"
  fi
  raw=${typed%"$raw"} # what bash has put aside at its own breaks
  [[ -n $raw ]] && for i in "${!COMPREPLY[@]}"; do COMPREPLY[i]=${COMPREPLY[i]#"$raw"}; done
  return 0
}

complete -F _ledgerctl_complete ledgerctl"""


def bash(table: tuple[CommandEntry, ...]) -> Iterator[str]:
    """Write the file for bash 4.2 and newer; it needs nothing of the bash-completion package."""
    yield BASH_HEAD
    for entry in table:
        yield f"    '{entry.path}') options='{spellings(own(entry))}' plain='{entry.words or '-'}'"
        yield f"      values='{kinds(own(entry))}' ;;"
    head, rest = BASH_REST.split("_ledgerctl_values()", 1)
    yield head.rstrip("\n")
    yield ""
    yield f"_ledgerctl_nouns='{','.join(NOUNS)}'"
    yield f"_ledgerctl_common='{spellings(common(table))}'"
    yield f"_ledgerctl_common_values='{kinds(common(table))}'"
    yield ""
    yield "_ledgerctl_commands() { # the commands of a noun"
    yield "  case $1 in"
    for noun, entries in by_noun(table).items():
        yield f"    {noun}) echo '{','.join(entry.path.split()[1] for entry in entries)}' ;;"
    yield "  esac"
    yield "}"
    yield ""
    yield f"_ledgerctl_values(){rest}"


# zsh

ZSH_HEAD: Final = """\
#compdef ledgerctl
# Completion of ledgerctl for zsh; written by `ledgerctl completion show zsh`.

_ledgerctl_values() { # the values of a kind
  case $1 in
    @file) _files ;;
    @*)
      local -a found
      found=(${(f)"$(ledgerctl --complete ${1#@} ${words[2,-1]} 2>/dev/null </dev/null)"})
      found=(${${found//:/\\\\:}//$'\\t'/:})
      _describe 'value' found ;;
    -) ;;
    *) compadd -- ${(s:,:)1} ;;
  esac
}

_ledgerctl() {
  local -a nouns commands options values
  local at=$words[2] plain=- previous=$words[CURRENT-1] entry"""

ZSH_REST: Final = """\
  if (( CURRENT == 2 )); then
    _describe -t commands 'command' nouns
    return
  fi
  case $at in"""

ZSH_END: Final = """\
  if [[ $words[CURRENT] == --*=* ]]; then
    previous=${words[CURRENT]%%=*}
    compset -P '*='
  fi
  for entry in $values; do
    if [[ ${entry%%=*} == $previous ]]; then
      _ledgerctl_values ${entry#*=}
      return
    fi
  done
  if [[ $words[CURRENT] == -* ]]; then
    _describe -o -t options 'option' options
  else
    _ledgerctl_values $plain
  fi
}

if [[ $funcstack[1] == _ledgerctl ]]; then
  _ledgerctl "$@"
else
  compdef _ledgerctl ledgerctl
fi"""


def zsh(table: tuple[CommandEntry, ...]) -> Iterator[str]:
    """Write the file for zsh, in fpath as `_ledgerctl` or sourced; the first TAB works."""
    yield ZSH_HEAD
    yield "  nouns=("
    yield from (f"    {described(name, noun.text)}" for name, noun in NOUNS.items())
    yield "  )"
    yield ZSH_REST
    for noun, entries in by_noun(table).items():
        yield f"    {noun})"
        yield "      commands=("
        for entry in entries:
            yield f"        {described(entry.path.split()[1], entry.summary)}"
        yield "      )"
        yield "      if (( CURRENT == 3 )); then _describe -t commands 'command' commands; return; fi"
        yield '      at+=" $words[3]" ;;'
    yield "  esac"
    yield "  case $at in"
    for entry in table:
        yield f"    '{entry.path}')"
        yield f"      plain='{entry.words or '-'}'"
        yield f"      values=({' '.join(map(quoted, kinds(own(entry)).split()))})"
        yield "      options=("
        yield from zsh_options(own(entry))
        yield "      ) ;;"
    yield "    *) return 1 ;;"
    yield "  esac"
    yield f"  values+=({' '.join(map(quoted, kinds(common(table)).split()))})"
    yield "  options+=("
    yield from zsh_options(common(table))
    yield "  )"
    yield ZSH_END


def zsh_options(options: Iterable[OptionEntry]) -> Iterator[str]:
    """Yield each long option with its help."""
    for option in options:
        for name in option.names:
            if name.startswith("--"):
                yield f"        {described(name, option.help)}"


def described(word: str, text: str) -> str:
    """Return a word and its help as zsh's `_describe` reads them."""
    return quoted(f"{word}:{text.removesuffix('.')}".replace("\\", "\\\\"))


def quoted(text: str) -> str:
    """Return a text in single quotes, for any of the shells."""
    return "'" + text.replace("'", "'\\''") + "'"


# fish

FISH_HEAD: Final = """\
# Completion of ledgerctl for fish; written by `ledgerctl completion show fish`.

function __ledgerctl_at --description 'whether the line has reached this command'
    set -l words (commandline -opc)
    set -l wanted (string split ' ' -- $argv[1])
    test (count $words) -gt (count $wanted); or return 1
    test "$words[2.."(math (count $wanted) + 1)"]" = "$argv[1]"
end

function __ledgerctl_wants --description 'whether the next word is the first after these'
    set -l words (commandline -opc)
    test "$words[2..]" = "$argv[1]"
end

function __ledgerctl_ids --description 'ids of a kind'
    set -l words (commandline -opc) (commandline -ct)
    ledgerctl --complete $argv[1] $words[2..] 2>/dev/null </dev/null
end

complete -c ledgerctl -f"""


def fish(table: tuple[CommandEntry, ...]) -> Iterator[str]:
    """Write the file for fish 3.1 and newer."""
    yield FISH_HEAD
    for name, described_noun in NOUNS.items():
        text = quoted(described_noun.text)
        yield f"complete -c ledgerctl -n \"__ledgerctl_wants ''\" -a {name} -d {text}"
    for noun, entries in by_noun(table).items():
        for entry in entries:
            word = entry.path.split()[1]
            yield f"complete -c ledgerctl -n '__ledgerctl_wants {noun}' -a {word} -d {quoted(entry.summary)}"
    for entry in table:
        here = f"complete -c ledgerctl -n \"__ledgerctl_at '{entry.path}'\""
        if entry.words not in {FLAG, "-"}:
            yield f"{here} {fish_values(entry.words)}"
        for option in entry.options:
            yield f"{here} {fish_option(option)}"


def fish_option(option: OptionEntry) -> str:
    """Return one option: its spellings, its values, its help."""
    names = [
        f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names
    ]
    values = [] if option.kind == FLAG else [f"-x {fish_values(option.kind)}".strip()]
    if option.kind == FILE:
        values = ["-r -F"]
    return " ".join([*names, *values, f"-d {quoted(option.help.removesuffix('.'))}"])


def fish_values(kind: str) -> str:
    """Return the values of a kind."""
    if kind == FILE:
        return "-F"
    if kind.startswith("@"):
        return f"-a '(__ledgerctl_ids {kind[1:]})'"
    return "" if kind == "-" else f"-a {quoted(kind.replace(',', ' '))}"


WRITERS: Final[dict[str, Callable[[tuple[CommandEntry, ...]], Iterator[str]]]] = {
    "bash": bash,
    "zsh": zsh,
    "fish": fish,
}
FILE_NAMES: Final = {"bash": "ledgerctl.bash", "zsh": "_ledgerctl", "fish": "ledgerctl.fish"}
