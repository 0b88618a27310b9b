"""Flags of the programs: their formats, defaults and errors."""

from collections.abc import Sequence

import pytest

from runtime import logs, program
from tests.support import flags_page
from tests.support.flags_page import PAGE, PROGRAMS


@pytest.mark.parametrize("name", PROGRAMS)
def test_default_of_flag_is_an_allowed_value(name: str) -> None:
    flags = PROGRAMS[name]
    written = [f"{flag.name}={flag.format.write(flag.default)}" for flag in flags]
    assert program.parsed(name, "", written, flags) == program.parsed(name, "", (), flags)


@pytest.mark.parametrize(
    ("module", "argument", "value"),
    [
        ("controller", "--lease-duration=1m30s", 90),
        ("controller", "--report-port=0", 0),
        ("controller", "--report-port=65535", 65_535),
        ("extender", "--stale-after=1s", 1),
        ("webhook", "--rotation-soak=5s", 5),
        ("webhook", "--listen=0.0.0.0:65535", "0.0.0.0:65535"),
        ("webhook", "--listen=[::]:8443", "[::]:8443"),
        ("webhook", "--metrics-listen=localhost:0", "localhost:0"),
    ],
)
def test_valid_value_is_read(module: str, argument: str, value: object) -> None:
    name = argument.partition("=")[0]
    assert program.parsed(module, "", [argument], PROGRAMS[f"ebb-{module}"])[name] == value


@pytest.mark.parametrize(
    ("module", "name", "values", "allowed"),
    [
        (
            "controller",
            "--lease-duration",
            ["2s", "15", "721h", "1.5s"],
            'a duration of whole seconds, 3s to 720h, such as "10m" or "1h30m"',
        ),
        ("controller", "--report-port", ["65536", "-1", "x"], "a port from 0 to 65535"),
        (
            "webhook",
            "--metrics-listen",
            ["0.0.0.0:65536", "0.0.0.0:99999", ":80", "a b:80", "http://x", "x:\u0661"],
            "host:port, the port at most 65535",
        ),
    ],
)
def test_invalid_value_is_an_error_with_flag_value_and_allowed_values(
    module: str,
    name: str,
    values: Sequence[str],
    allowed: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for value in values:
        with pytest.raises(SystemExit) as ended:
            program.parsed("ebb-it", "", [f"{name}={value}"], PROGRAMS[f"ebb-{module}"])
        assert ended.value.code == program.FAULT
        last = capsys.readouterr().err.splitlines()[-1]
        assert last == f"ebb-it: error: argument {name}: {value!r}; allowed: {allowed}"


@pytest.mark.parametrize("level", logs.LEVELS)
def test_level_of_log_is_a_flag(level: str) -> None:
    flags = (program.LOG_LEVEL,)
    found = program.parsed("ebb-it", "", [f"--log-level={level}"], flags)
    assert found[program.LOG_LEVEL.name] == level
    with pytest.raises(SystemExit):
        program.parsed("ebb-it", "", ["--log-level=debug"], flags)


def test_table_of_flags_is_up_to_date() -> None:
    page = PAGE.read_text("utf-8")
    assert page == flags_page.written(page), "make fix regenerates it"
