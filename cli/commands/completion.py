"""`ebb completion SHELL`: print a script with which a shell completes commands and options."""

import sys
from typing import Final

import click
from click.shell_completion import (
    CompletionItem,
    ShellComplete,
    add_completion_class,
    get_completion_class,
)

from cli.usage import KEEP_LINES, program_name

SHELLS: Final = ("bash", "fish", "zsh", "kubectl")
NO_FILES: Final = ":4"
"""Directive to kubectl that the words are no files (ShellCompDirectiveNoFileComp of cobra)."""
FILES: Final = ":0"

EXAMPLES: Final = f"""\
{KEEP_LINES}
Examples:
  source <({program_name()} completion bash)
  {program_name()} completion fish > ~/.config/fish/completions/ebb.fish
  {program_name()} completion kubectl > ~/.local/bin/kubectl_complete-ebb"""


@add_completion_class
class _Kubectl(ShellComplete):
    """Complete for kubectl, which runs a plugin's `kubectl_complete-NAME` with the words."""

    name = "kubectl"
    source_template = """\
#!/bin/sh
# Save this file as kubectl_complete-ebb in a folder of PATH, and make it executable.
%(complete_var)s=kubectl_complete exec kubectl-ebb "$@"
"""

    def get_completion_args(self) -> tuple[list[str], str]:
        words = sys.argv[1:]
        return words[:-1], words[-1] if words else ""

    def format_completion(self, item: CompletionItem[str]) -> str:
        return f"{item.value}\t{item.help}" if item.help else item.value

    def complete(self) -> str:
        items = self.get_completions(*self.get_completion_args())
        words = [self.format_completion(item) for item in items if item.type == "plain"]
        return "\n".join((*words, NO_FILES if len(words) == len(items) else FILES))


@click.command("completion", epilog=EXAMPLES)
@click.argument("shell", type=click.Choice(SHELLS), metavar="SHELL")
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script for bash, fish, zsh, or the plugin `kubectl ebb`."""
    completion, root = get_completion_class(shell), ctx.find_root().command
    if completion is None:
        raise click.UsageError(f"{shell}: not supported by this version of click")
    click.echo(completion(root, {}, "ebb", "_EBB_COMPLETE").source(), nl=False)
