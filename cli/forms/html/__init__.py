"""A replay as one HTML page that opens offline: its pictures stand in it, and it asks for nothing.

The template escapes all that it is given; what stands in a page may come from a cluster's tenants.
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
    """Write the page."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    near, far = pictures.near_and_far(answer.ways)
    return environment.get_template(TEMPLATE).render(
        answer=answer,
        far=far,
        tradeoff=pictures.tradeoff(near, answer.recommended.name if answer.recommended else ""),
        capacity=pictures.capacity(answer.modes) if answer.modes[0].moments else "",
    )
