"""A replay as one self-contained HTML page that opens offline.

The template escapes all values, because names may come from tenants of the cluster.
"""

from pathlib import Path
from typing import Final

from cli.answers import Replayed
from core.model.errors import InvalidInputError

try:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    from cli.forms.html import pictures
except ImportError as fault:
    problem = "the page needs jinja2 and matplotlib: pip install 'kube-ebb[demo]'"
    raise InvalidInputError("html", problem) from fault

TEMPLATE: Final = "page.html.jinja"


def text(answer: Replayed) -> str:
    """Return the HTML page of a replay."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    near, far = pictures.near_and_far(answer.variants)
    return environment.get_template(TEMPLATE).render(
        answer=answer,
        far=far,
        tradeoff=pictures.tradeoff(near, answer.recommended.name if answer.recommended else ""),
        capacity=pictures.capacity(answer.modes) if answer.modes[0].moments else "",
    )
