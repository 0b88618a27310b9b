"""Hooks of the site with the documentation; mkdocs.yml names this file."""


def on_page_content(html: str, **_: object) -> str:
    """Let wide tables scroll instead of the page, and let the keyboard reach tables and code."""
    start = '<div class="table-responsive" tabindex="0"><table>'
    scrolling = html.replace("<table>", start).replace("</table>", "</table></div>")
    return scrolling.replace("<pre>", '<pre tabindex="0">')
