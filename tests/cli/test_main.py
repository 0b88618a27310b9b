"""The command `ebb`: its imports, shell completion, and outputs that cannot be written."""

import os
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import orjson
import pytest
import yaml

from cli import output
from cli.__main__ import main
from tests.support.plan_cli import COMMAND, ITEMS, ROOT, dump, ebb, node, plan_of, without_warnings

HEAVY = {
    "aiohttp",
    "asyncio",
    "highspy",
    "kubernetes",
    "matplotlib",
    "numpy",
    "prometheus_client",
    "sim",
}
IMPORTED = """
import sys
from cli.__main__ import main
status = main(sys.argv[1:])
print(*sys.modules, file=sys.stderr)
sys.exit(status)
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "dump.json"
    file.write_bytes(dump(*ITEMS))
    return str(file)


def imported(*arguments: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED, *arguments], capture_output=True, cwd=ROOT, check=True
    )
    return set(done.stderr.decode().split())


class TestImports:
    @pytest.mark.parametrize(
        "arguments",
        [
            ["--help"],
            ["--version"],
            *(
                [name, "--help"]
                for name in (
                    "plan",
                    "status",
                    "history",
                    "doctor",
                    "reasons",
                    "unmark",
                    "cleanup",
                    "demo",
                    "replay",
                )
            ),
            ["explain", "node", "--help"],
            ["reasons"],
            ["reasons", "-o", "json"],
        ],
        ids=" ".join,
    )
    def test_help_and_reasons_import_no_client_simulation_or_plotting(
        self, arguments: list[str]
    ) -> None:
        found = imported(*arguments)
        assert "click" in found  # shows that the names of modules were printed
        assert not found & HEAVY

    @pytest.mark.parametrize(
        "asked",
        [
            ["--help"],
            ["--version"],
            ["version", "--help"],
            ["plan", "--help"],
            ["explain", "--help"],
            ["status", "--help"],
            ["doctor", "--help"],
        ],
    )
    def test_help_and_version_import_no_settings_and_no_engine(self, asked: list[str]) -> None:
        found = imported(*asked)
        assert not found & {"pydantic", "msgspec", "yaml", "rich", "core.engine", "core.config"}

    @pytest.mark.parametrize(
        "command", [["plan"], ["status"], ["doctor"], ["explain", "pod", "shop/c1"]]
    )
    def test_commands_import_no_client_when_cluster_is_read_from_dump(
        self, command: list[str], path: str
    ) -> None:
        found = imported(*command, "--from-file", path)
        assert "msgspec" in found
        assert not found & HEAVY

    def test_plan_imports_no_yaml_and_no_other_answers_when_cluster_is_read_from_dump(
        self, path: str
    ) -> None:
        found = imported("plan", "--from-file", path)
        assert "cli.answers" in found
        assert not found & {
            "cli.doctor",
            "cli.explain.explainer",
            "cli.input.overview",
            "controller.leader_report",
            "core.config.schema",
            "yaml",
        }

    def test_help_imports_no_command_and_few_modules(self) -> None:
        found = imported("--help")
        assert not found & {"msgspec", "orjson", "pydantic", "rich", "yaml"}
        ours = {name for name in found if name.startswith(("cli.", "core."))}
        assert ours == {"cli.__main__", "cli.usage", "core.model", "core.model.errors"}


class TestConventions:
    """The conventions of kubectl."""

    def test_version_is_option_and_command(self, tmp_path: Path) -> None:
        asked = [ebb(one, HOME=str(tmp_path)) for one in ("version", "--version")]
        assert {done.returncode for done in asked} == {0}
        with_controller, alone = (done.stdout.splitlines() for done in asked)
        assert alone == with_controller[:1]
        assert alone[0].startswith(b"ebb ")
        assert with_controller[1].startswith(b"controller unknown: no cluster: ")

    def test_usage_names_kubectl_when_program_is_its_plugin(self, tmp_path: Path) -> None:
        plugin = tmp_path / "kubectl-ebb"
        plugin.write_text("import sys; from cli.__main__ import main; sys.exit(main())")
        done = subprocess.run(
            [sys.executable, plugin, "plan", "--no"],
            capture_output=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            check=False,
        )
        assert done.returncode == 2
        assert b"Usage: kubectl ebb plan" in done.stderr

    @pytest.mark.parametrize("shell", ["bash", "fish", "zsh", "kubectl"])
    def test_completion_script_is_printed(self, shell: str) -> None:
        done = ebb("completion", shell)
        assert (done.returncode, done.stderr) == (0, b"")
        assert b"_EBB_COMPLETE" in done.stdout

    def test_reasons_explains_named_codes(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["reasons", "no-room", "headroom", "-o", "json"]) == 0
        found = orjson.loads(capsys.readouterr().out)
        assert [one["code"] for one in found] == ["no-room", "headroom"]
        assert main(["reasons", "no-rom"]) == 2
        told = "ebb: reason no-rom: unknown; did you mean no-room? `ebb reasons` lists all codes\n"
        assert capsys.readouterr().err == told

    @pytest.mark.parametrize("command", [["status"], ["doctor"], ["explain", "pod", "shop/c1"]])
    def test_yaml_has_fields_of_json(
        self, command: list[str], path: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        given = [*command, "--from-file", path, "-o"]
        main([*given, "yaml"])
        found = yaml.safe_load(capsys.readouterr().out)
        main([*given, "json"])
        document = orjson.loads(capsys.readouterr().out)
        assert found.keys() == document.keys()
        assert found["units"] == document["units"]
        assert isinstance(document["time"], int)

    def test_exit_code_is_1_for_findings_only_if_asked(
        self, path: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        given = ["plan", "--from-file", path]
        found = plan_of(capsys, "--from-file", path)["removals"]
        assert main(given) == 0
        assert main([*given, "--exit-code"]) == (1 if found else 0)
        assert main([*given, "--max-removals", "0", "--exit-code"]) == 0

    def test_pod_is_found_by_namespace_option_or_in_all_namespaces(
        self, path: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for given in (["c1", "-n", "shop"], ["c1", "-A"], ["shop/c1", "-n", "other"]):
            assert main(["explain", "pod", *given, "--from-file", path, "-o", "json"]) == 0
            assert orjson.loads(capsys.readouterr().out)["pod"] == "shop/c1"
        assert main(["explain", "pod", "c1", "-n", "other", "--from-file", path]) == 2
        assert "pod other/c1: not found" in capsys.readouterr().err


class TestUnwritableOutput:
    COMMANDS = (
        ["--help"],
        ["plan", "--help"],
        ["plan", "--from-file", "DUMP"],
        ["plan", "--from-file", "DUMP", "-o", "json"],
        ["plan", "--from-file", "DUMP", "-o", "csv"],
        ["plan", "--from-file", "DUMP", "-o", "wide"],
        ["explain", "pod", "shop/c1", "--from-file", "DUMP"],
        ["status", "--from-file", "DUMP"],
        ["doctor", "--from-file", "DUMP"],
        ["reasons", "-o", "markdown"],
        ["demo"],
    )

    @pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
    def test_command_reports_one_line_when_device_is_full(
        self, arguments: list[str], path: str
    ) -> None:
        with Path("/dev/full").open("wb") as full:
            done = run(arguments, path, stdout=full)
        told = b"ebb: standard output: No space left on device\n"
        assert (done.returncode, without_warnings(done.stderr)) == (2, told)

    @pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
    def test_command_reports_one_line_when_standard_output_is_closed(
        self, arguments: list[str], path: str
    ) -> None:
        done = run(["-c", 'exec "$@" >&-', "sh", *COMMAND, *arguments], path, command=("sh",))
        assert (done.returncode, done.stderr) == (2, b"ebb: standard output is closed\n")

    @pytest.mark.parametrize("arguments", COMMANDS[:-1], ids=" ".join)
    def test_command_exits_silently_when_pipe_is_broken(
        self, arguments: list[str], path: str
    ) -> None:
        ours, theirs = os.pipe()
        os.close(ours)
        with os.fdopen(theirs, "wb") as pipe:
            done = run(arguments, path, stdout=pipe)
        assert (done.returncode, without_warnings(done.stderr)) == (0, b"")

    def test_command_exits_with_2_when_standard_error_is_closed(self, path: str) -> None:
        script = ["-c", 'exec "$@" 2>&-', "sh", *COMMAND, "plan", "--from-file", "/no/such"]
        done = run(script, path, command=("sh",), stdout=subprocess.PIPE)
        assert (done.returncode, done.stdout) == (2, b"")


def run(
    arguments: list[str],
    path: str,
    *,
    command: tuple[str, ...] = COMMAND,
    stdout: int | IO[bytes] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    given = [*command, *(path if one == "DUMP" else one for one in arguments)]
    error = subprocess.PIPE
    return subprocess.run(given, stdout=stdout, stderr=error, cwd=ROOT, check=False, timeout=60)


COMPLETED = """
eval "$(_EBB_COMPLETE=bash_source ebb)"
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_ebb_completion ebb
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize("encoding", ["ascii", "iso8859-1", "utf-8"])
@pytest.mark.parametrize("form", ["table", "json"])
def test_output_escapes_characters_that_encoding_lacks(
    encoding: str, form: str, tmp_path: Path
) -> None:
    """The file names contain a byte that is not UTF-8, and characters outside of the encoding."""
    file = tmp_path / "\udcff \u00fc \u6f22 \U0001f600.json"
    file.write_bytes(dump(*ITEMS))
    config = tmp_path / "\udcff.yaml"
    config.write_text("apiVersion: kube-ebb.io/v1alpha1\nkind: EbbConfiguration\n")
    told = ("--from-file", str(file), "--config", str(config), "-o", form)
    done = ebb("status", *told, PYTHONIOENCODING=encoding)
    assert (done.returncode, without_warnings(done.stderr)) == (0, b"")
    text = done.stdout.decode(encoding)
    if form == "json":
        found = orjson.loads(text)
        assert found["source"].endswith("\\udcff \u00fc \u6f22 \U0001f600.json")
        assert found["configuration"].endswith("\\udcff.yaml")
    else:
        assert "\\udcff" in text


class TestCompletion:
    @pytest.mark.parametrize(
        ("words", "offered"),
        [
            (["re"], ["reasons", "replay"]),
            (["completion", ""], ["bash", "fish", "zsh", "kubectl"]),
            (["plan", "--policy", "Ex"], ["ExcessNodes"]),
            (["explain", ""], ["node", "pod"]),
            (["config", ""], ["schema", "validate"]),
            (["plan", "--max-"], ["--max-removals", "--max-cpu", "--max-memory"]),
            (["reasons", "-o", ""], ["table", "json", "yaml", "markdown"]),
            (["plan", "-o", "j"], ["json"]),
        ],
    )
    def test_bash_completes_commands_and_options(
        self, words: list[str], offered: list[str], tmp_path: Path
    ) -> None:
        program = tmp_path / "ebb"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m cli "$@"\n')
        program.chmod(0o755)
        done = subprocess.run(
            ["bash", "--norc", "-c", COMPLETED, "bash", "ebb", *words],
            capture_output=True,
            cwd=ROOT,
            env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
            check=True,
        )
        assert (done.stdout.decode().split(), done.stderr) == (offered, b"")

    def test_completion_rejects_unknown_shell(self) -> None:
        assert ebb(_EBB_COMPLETE="dash_source").returncode == 1


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "ebb: error: Missing command."),
        (["plam"], "ebb: error: No such command 'plam'. (Did you mean one of: 'plan', "),
        (["explain"], "ebb explain: error: Missing argument 'TYPE NAME...'."),
        (["explain", "node"], "ebb explain: error: Missing argument 'NAME'; allowed: node NAME"),
        (["explain", "no/a", "po/b"], "ebb explain: error: name either nodes or pods, not both"),
        (["explain", "n1"], "ebb explain: error: 'n1'; allowed: node NAME..., pod [NAMESPACE/]"),
        (["explain", "node/"], "ebb explain: error: 'node/'; allowed: node NAME..., pod "),
        (["status", "-w", "--from-file", "f"],
         "ebb status: error: --watch: not allowed with --from-file"),
        (["plan", "-w", "--exit-code"], "ebb plan: error: --watch: not allowed with --exit-code"),
        (["plan", "--from-file", "f", "--context", "c"],
         "ebb plan: error: --context: not allowed with --from-file"),
        (["plan", "--max-cpu", "0%"], "ebb plan: error: Invalid value for '--max-cpu': '0%'; "),
    ],
)  # fmt: skip
def test_invalid_command_line_is_rejected_with_usage_and_reason(
    arguments: list[str], problem: str
) -> None:
    done = ebb(*arguments)
    usage, told = done.stderr.decode().splitlines()
    assert usage.startswith("Usage: ebb")
    assert told.startswith(problem)
    assert (done.returncode, done.stdout) == (2, b"")


@pytest.mark.parametrize(
    "formats",
    [
        output.PLAN,
        output.EXPLAINED,
        output.STATUS,
        output.DIAGNOSIS,
        output.REASONS,
        output.SETTINGS,
        output.REPLAY,
    ],
)
def test_every_answer_has_text_and_json(formats: output.Formats[Any]) -> None:
    names = [form.name for form in formats]
    assert {"table", "json", "yaml"} <= set(names)
    assert len(names) == len(set(names))


@pytest.mark.parametrize("command", ["plan", "status", "doctor"])
def test_names_of_files_are_escaped_on_standard_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """Whoever may name a file could change the title of the terminal, or hide a line."""
    path = tmp_path / "a\x1b]0;title\x07\u202egnp\x9b31m.json"
    for content in (dump(*ITEMS, node("bad", spec={"taints": 7})), b"{"):
        path.write_bytes(content)
        main([command, "--from-file", str(path)])
        told = capsys.readouterr().err
        assert "title" in told
        assert told.replace("\n", "").isprintable()
