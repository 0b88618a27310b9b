"""Run `ebb migrate` on a file with given content."""

import io
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from cli.__main__ import main
from runtime.files import parse_config

HEAD = {"apiVersion": "kube-ebb.io/v1alpha1", "kind": "EbbConfiguration"}


def run(raw: bytes) -> tuple[int, str, str]:
    """Return exit code, standard output, and standard error without the name of the file."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "given")
        path.write_bytes(raw)
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = main(["migrate", str(path)])
        return code, out.getvalue(), err.getvalue().replace(str(path), "given")


def made(text: str) -> tuple[dict[str, Any], str]:
    """Return the fields and the comments of the converted configuration."""
    code, out, err = run(text.encode())
    assert (code, err) == (0, "")
    parse_config(out.encode(), "printed")
    fields = {key: value for key, value in yaml.safe_load(out).items() if key not in HEAD}
    return fields, "".join(line for line in out.splitlines(keepends=True) if line[0] == "#")


def fault(text: str) -> str:
    """Return the error line of an invalid file; check that nothing is printed."""
    code, out, err = run(text.encode())
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("ebb: given: ")
    return err.removeprefix("ebb: given: ")
