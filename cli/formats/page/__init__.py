"""One self-contained HTML page: a cluster, offline or live, or a time lapse of simulations.

The page contains its state as JSON, its script and its style, and loads nothing else. Names in the
state may come from tenants of the cluster. The script inserts them as text, never as HTML, and the
Content-Security-Policy allows no other script.
"""

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import orjson

from cli.answers import Planned
from cli.formats.page.state import PageState


class Template(NamedTuple):
    """File names of the HTML of a page, and of its scripts."""

    html: str
    scripts: tuple[str, ...]


CLUSTER: Final = Template("page.html", ("common.js", "map.js", "script.js"))
LAPSE: Final = Template("lapse.html", ("common.js", "lapse.js"))


def text(answer: Planned) -> str:
    """Return the HTML page of a plan with the details of all nodes, which opens offline."""
    return page(orjson.dumps(PageState(answer).document(details=True)))


def page(state: bytes, connect: str = "'none'", template: Template = CLUSTER) -> str:
    """Return an HTML page that contains its state.

    *state*: JSON. *connect*: sources from which the page may load data, as in the directive
    connect-src.
    """
    policy = content_security_policy(connect, template)
    parts = {"policy": policy, "style": _part("style.css"), "script": _script(template)}
    # The state is inserted last: it is the only part that may contain a placeholder by accident.
    html = _part(template.html)
    for name, part in (*parts.items(), ("state", escaped(state))):
        html = html.replace(f"@@{name}@@", part, 1)
    return html


def content_security_policy(connect: str, template: Template = CLUSTER) -> str:
    """Return the Content-Security-Policy of a page, which allows no other script and style.

    It allows no image, font or frame. *connect*: sources from which the page may load data.
    """
    return (
        f"default-src 'none'; script-src {_hash(_script(template))}; "
        f"style-src {_hash(_part('style.css'))}; "
        f"connect-src {connect}; base-uri 'none'; form-action 'none'"
    )


def escaped(state: bytes) -> str:
    """Return JSON as text that cannot end the HTML script element in which it is inserted."""
    return state.decode().replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _script(template: Template) -> str:
    return "".join(map(_part, template.scripts))


@cache
def _part(name: str) -> str:
    return (Path(__file__).parent / name).read_text("utf-8")


def _hash(part: str) -> str:
    digest = hashlib.sha256(part.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
