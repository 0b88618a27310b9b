"""Control characters of untrusted names do not reach a terminal."""

import io
import json
import logging
import re
import sys
from pathlib import Path

import pytest

from runtime import logs, program
from runtime.messages import printable, printable_json, tell, tell_lines

HOSTILE = "\x1b]0;title\x07 \x9b31m \u202egnp.exe\u2066 \x7f\r\u2028\U000e0001"
"""A title for the terminal, a color, text that runs backwards, and invisible characters."""
ROOT = Path(__file__).parents[2]


def test_control_characters_are_escaped() -> None:
    assert printable("Knoten-ß 節点") == "Knoten-ß 節点"
    assert printable(HOSTILE).isprintable()
    assert printable("\x1b\u202e") == "\\x1b\\u202e"


def test_json_with_escaped_characters_has_the_same_value() -> None:
    raw = json.dumps({"name": HOSTILE}, ensure_ascii=False)
    assert printable_json(raw).isprintable()
    assert json.loads(printable_json(raw)) == {"name": HOSTILE}


def test_lines_are_printed_with_prefix(capsys: pytest.CaptureFixture[str]) -> None:
    tell_lines("a\nb\x1b", "ebb: ")
    out = io.StringIO()
    tell("c\nd", out)
    assert capsys.readouterr().err == "ebb: a\nebb: b\\x1b\n"
    assert out.getvalue() == "c\\nd\n"


def test_program_escapes_name_of_configuration_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def serve(_: program.Start) -> None: ...

    missing = f"{tmp_path}/{HOSTILE}"
    assert program.run("ebb-test", "", serve, ["--config", missing]) == program.FAULT
    told = capsys.readouterr().err
    assert "No such file" in told
    assert told.replace("\n", "").isprintable()


def test_log_line_is_printable_json() -> None:
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(logs._JsonLines())
    handler.handle(
        logging.makeLogRecord(
            {"msg": "rejected", "created": 1_700_000_000.5, **logs.fields(path=HOSTILE)}
        ),
    )
    line = out.getvalue().removesuffix("\n")
    assert line.isprintable()
    assert json.loads(line)["path"] == HOSTILE
    assert json.loads(line)["ts"] == "2023-11-14T22:13:20.500Z"


def test_one_module_prints_on_standard_error() -> None:
    direct = re.compile(r"sys\.stderr\.(?:write|buffer)|file=sys\.stderr\b|\bclick\.echo\(.*err=")
    folders = ("cli", "controller", "core", "extender", "kube", "runtime", "serving", "sim")
    paths = [path for folder in (*folders, "webhook") for path in (ROOT / folder).rglob("*.py")]
    assert len(paths) > 300
    assert sys.stderr is not None
    assert [path for path in paths if direct.search(path.read_text("utf-8"))] == []
