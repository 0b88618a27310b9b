"""Answers as YAML, with the same fields as JSON."""

from cli.answers import Answer
from cli.forms.json import document
from core.edge import files


def text(answer: Answer) -> str:
    """Return an answer as YAML."""
    return files.as_yaml(document(answer))
