"""Mistakes of people and tools in files: each is reported in one line, without traceback."""

import gzip
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from core.config.document import parse
from core.config.settings import API_VERSION, KIND, Config
from core.model.errors import ConfigError, InvalidInputError
from runtime import files

HEAD = {"apiVersion": API_VERSION, "kind": KIND}
YAML_HEAD = f"apiVersion: {API_VERSION}\nkind: {KIND}\n"
READ_STDIN = "from runtime import files; print(len(files.read_dump('-')))"
ROOT = Path(__file__).parents[3]


def faults_of(document: object) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as rejected:
        parse(document, "ebb.yaml")
    return rejected.value.faults


def read(tmp_path: Path, text: str) -> Config:
    file = tmp_path / "ebb.yaml"
    file.write_bytes(text.encode("utf-8"))
    return files.read_config(str(file))


@pytest.mark.parametrize(
    ("change", "path"),
    [
        pytest.param({"thresholds": {"cpu": "\u0668\u0660%"}}, "thresholds.cpu", id="percentage"),
        pytest.param({"unneededTime": "\u0661m"}, "unneededTime", id="duration"),
        pytest.param(
            {"prices": [{"nodeSelector": {"a": "b"}, "price": "\u0661"}]},
            "prices[0].price",
            id="number",
        ),
    ],
)
def test_value_is_rejected_when_digits_are_not_ascii(change: dict[str, Any], path: str) -> None:
    (fault,) = faults_of({**HEAD, **change})
    assert fault.startswith(f"{path}: ")


@pytest.mark.parametrize("key", ["a..b/c", "a./c", "-a/c", "A/c", f"{'a' * 254}/c", "a/", "a/b/c"])
def test_key_of_taint_is_rejected_when_kubernetes_would_reject_it(key: str) -> None:
    (fault,) = faults_of({**HEAD, "leavingTaints": [key]})
    assert fault.startswith("leavingTaints[0]: ")


@pytest.mark.parametrize("key", ["c", "C_1.x", "a.b-c.d/C_1", f"{'a' * 253}/{'c' * 63}"])
def test_valid_key_of_taint_is_accepted(key: str) -> None:
    assert parse({**HEAD, "leavingTaints": [key]}, "x").leaving_taints == (key,)


@pytest.mark.parametrize(
    ("given", "shown"), [(False, "false"), (1, "1"), ([], "[]"), ("off", "'off'")]
)
def test_usable_capacity_is_rejected_unless_keyword_or_mapping(given: object, shown: str) -> None:
    (fault,) = faults_of({**HEAD, "usableCapacity": given})
    assert fault == f"usableCapacity: {shown}; allowed: auto, all, or a mapping of four numbers"


def test_missing_fields_are_not_reported_when_value_is_no_mapping() -> None:
    (fault,) = faults_of({**HEAD, "prices": ["m5.large"]})
    assert fault == "prices[0]: 'm5.large'; allowed: a mapping of fields"
    (fault,) = faults_of([1])
    assert fault == "document: [1]; allowed: a mapping of fields"


def test_too_many_prices_are_rejected() -> None:
    (fault,) = faults_of({**HEAD, "prices": [{}] * 1001})
    assert "a list of at most 1000 entries" in fault


def test_every_fault_is_one_line() -> None:
    for fault in faults_of(
        {**HEAD, "a\nb": 1, "mode": "a\nb", "unneededTime": "\u2028", "\ud800": 1}
    ):
        assert len(fault.splitlines()) == 1
        assert fault.encode("utf-8")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("!!map x", "line 3: tags are not allowed"),
        ("!!map [a]", "line 3: tags are not allowed"),
        ("!!int ''", "line 3: tags are not allowed"),
        ("!!bool x", "line 3: tags are not allowed"),
        ("!!timestamp x", "line 3: tags are not allowed"),
        ("!!python/object:os.system x", "line 3: tags are not allowed"),
        ("! x", "line 3: tags are not allowed"),
        ("{<<: {cpu: 80%}}", "mode: {'<<'"),
        ("9999-12-31T23:59:59-23:59", "mode: '9999-12-31T23:59:59-23:59'; allowed"),
        ("0b_", "mode: '0b_'; allowed"),
        ("=", "mode: '='; allowed"),
        ("off", "mode: false; allowed"),
        ("yes", "mode: true; allowed"),
        ("9" * 5000, "not YAML: "),
        ("[" * 20_000, "not YAML: "),
        ('"\\ud800"', "line 3: half of a surrogate pair is not valid text"),
        ('"\\ud83d\\ude00"', "mode: '\U0001f600'; allowed"),
        ('x\n"\\udfff": y', "line 4: half of a surrogate pair is not valid text"),
        ("x\0", "not YAML: "),
        ("x\n---\nmode: y", "line 4: expected a single document in the stream, but found"),
        ("x\n\tdelay: 1m", "line 4: "),
    ],
)
def test_yaml_traps_are_rejected(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as rejected:
        read(tmp_path, f"{YAML_HEAD}mode: {text}\n")
    assert rejected.value.faults[0].startswith(problem)
    assert len(str(rejected.value).splitlines()) == len(rejected.value.faults)


def test_number_is_read_as_decimal_or_rejected(tmp_path: Path) -> None:
    head = YAML_HEAD + "prices:\n- {nodeSelector: {a: b}, price: "
    for written, price in (("010", "10"), ("0.096", "12/125"), ("-0", "0"), ("007.5", "15/2")):
        assert str(read(tmp_path, f"{head}{written}}}").prices[0].price) == price
    for written in ("1:30", "0x10", "1_000", "1e3", ".5", "-1", ".inf"):
        with pytest.raises(ConfigError, match=r"prices\[0\]\.price: "):
            read(tmp_path, f"{head}{written}}}")


def test_byte_order_mark_is_accepted(tmp_path: Path) -> None:
    assert read(tmp_path, "\ufeff" + YAML_HEAD) == Config()


def test_directory_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Is a directory"):
        files.read_config(str(tmp_path))
    with pytest.raises(InvalidInputError, match="Is a directory"):
        files.read_dump(str(tmp_path))


def dump(tmp_path: Path, raw: bytes) -> str:
    path = tmp_path / "dump"
    path.write_bytes(raw)
    return str(path)


def test_all_gzip_members_are_read_for_any_file_name(tmp_path: Path) -> None:
    raw = gzip.compress(b"{" * 9) + gzip.compress(b"}" * 9) + b"\0" * 512
    assert files.read_dump(dump(tmp_path, raw)) == b"{" * 9 + b"}" * 9


@pytest.mark.parametrize(
    ("cut", "problem"),
    [
        pytest.param(lambda raw: raw[:-9], "gzip ends too early", id="cut in the data"),
        pytest.param(lambda raw: raw[:2], "gzip ends too early", id="magic number only"),
        pytest.param(lambda raw: raw + b"junk", "damaged gzip", id="trailing data"),
        pytest.param(lambda raw: raw[:2] + b"junk", "damaged gzip: unknown", id="not gzip"),
        pytest.param(lambda raw: raw[:-8] + b"xxxx" + raw[-4:], "damaged gzip", id="checksum"),
        pytest.param(lambda raw: raw[:10] + b"\xff" * 9, "damaged gzip", id="no deflate"),
    ],
)
def test_damaged_gzip_is_reported_with_its_name(tmp_path: Path, cut: Any, problem: str) -> None:
    path = dump(tmp_path, cut(gzip.compress(b"{}" * 100)))
    with pytest.raises(InvalidInputError) as rejected:
        files.read_dump(path)
    assert str(rejected.value).startswith(f"{path}: {problem}")


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_dump_size_is_bounded_after_decompression(tmp_path: Path, pack: Any) -> None:
    path = dump(tmp_path, pack(b"x" * 1000))
    assert len(files.read_dump(path, 1000)) == 1000
    with pytest.raises(InvalidInputError, match=r"(larger|more) than 999 bytes"):
        files.read_dump(path, 999)


def test_dump_is_read_from_stdin_unless_it_is_closed() -> None:
    command = [sys.executable, "-c", READ_STDIN]
    for raw in (b"{}", gzip.compress(b"{}")):
        done = subprocess.run(command, cwd=ROOT, input=raw, capture_output=True, check=True)
        assert done.stdout == b"2\n"
    closed = subprocess.run(
        command, cwd=ROOT, capture_output=True, check=False, preexec_fn=lambda: os.close(0)
    )
    assert b"InvalidInputError: standard input: Bad file descriptor" in closed.stderr
