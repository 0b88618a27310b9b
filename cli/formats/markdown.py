"""Answers as Markdown: the generated pages in docs/."""

from cli.answers import Reasons, SettingsSchema
from cli.explain.reasons import page as reasons_page
from core.config.page import page as settings_page


def text(answer: Reasons | SettingsSchema) -> str:
    """Return the text of docs/reasons.md or docs/configuration.md."""
    return reasons_page() if isinstance(answer, Reasons) else settings_page()
