"""Which codes do blockers carry in the code base: read from its syntax."""

import ast
import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FunctionType
from typing import Any

ROOT = Path(__file__).parents[2]
RULES = "RULES"
"""Names of tuples of (code, rule) end so."""


def used() -> dict[str, str]:
    """Return every code of core/ and webhook/, and one place where it stands."""
    found: dict[str, str] = {}
    for room in ("core", "webhook"):
        for path in sorted((ROOT / room).rglob("*.py")):
            source = path.read_text("utf-8")
            if "Blocker" not in source:
                continue
            inside = path.relative_to(ROOT)
            module = importlib.import_module(".".join(inside.with_suffix("").parts))
            for line, code in codes(source, vars(module)):
                found.setdefault(code, f"{inside}:{line}")
    return found


def codes(source: str, names: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    """Yield (line, code) for every Blocker that *source* makes.

    A code is a text, a name that the module knows (*names*), or comes out of the tuples of rules
    that the function looks at. Raises: AssertionError where it is none of them.
    """
    tree = ast.parse(source)
    functions = [
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.alias):
            assert node.name != "Blocker" or node.asname is None, "Blocker under another name"
        if isinstance(node, ast.Call) and _called(node.func) == "Blocker":
            around = [one for one in functions if node in ast.walk(one)]
            for code in _codes_of(node, around, names):
                assert isinstance(code, str), f"line {node.lineno}: {code!r} is no text"
                yield node.lineno, str(code)


def _called(function: ast.expr) -> str | None:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else None


def _codes_of(call: ast.Call, around: list[Any], names: Mapping[str, Any]) -> list[object]:
    given = [one.value for one in call.keywords if one.arg == "code"]
    argument = call.args[0] if call.args else given[0]
    try:
        return [eval(compile(ast.Expression(argument), "code", "eval"), dict(names))]
    except NameError:
        pass
    rules = {
        one.id
        for function in around
        for one in ast.walk(function)
        if isinstance(one, ast.Name) and one.id.endswith(RULES) and one.id in names
    }
    found = [code for name in sorted(rules) for code, _ in names[name]]
    if not found:
        found = [code for table in _rules_of_called(around, names) for code, _ in table]
    assert found, f"line {call.lineno}: cannot tell which codes {ast.unparse(argument)} may be"
    return found


def _rules_of_called(around: list[Any], names: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the tuples of rules at which the functions look that are called here."""
    called = {one.id for function in around for one in ast.walk(function)
              if isinstance(one, ast.Name)}  # fmt: skip
    for name in sorted(called):
        function = names.get(name)
        if isinstance(function, FunctionType):
            for used_name in function.__code__.co_names:
                if used_name.endswith(RULES):
                    yield function.__globals__[used_name]
