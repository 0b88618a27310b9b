"""`ebb completion SHELL`: print a script with which a shell completes commands and options."""

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "fish", "zsh")


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS), metavar="SHELL")
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script for bash, fish or zsh.

    In bash: source <(ebb completion bash)
    """
    completion, root = get_completion_class(shell), ctx.find_root().command
    if completion is None:
        raise click.UsageError(f"{shell}: not supported by this version of click")
    click.echo(completion(root, {}, "ebb", "_EBB_COMPLETE").source())
