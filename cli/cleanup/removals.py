"""Make removals one after another, print each, and count the rejected ones."""

from collections import Counter
from collections.abc import Awaitable, Callable

from core.model.errors import UnavailableError
from core.model.humanize import plural
from kube.stores.objects import Failures
from runtime.messages import printable, tell


def warn(message: str) -> None:
    """Print a message on standard error."""
    tell(f"ebb: {message}")


class Removals:
    """Makes removals and prints each; in a dry run, it only prints them."""

    def __init__(self, *, dry_run: bool) -> None:
        self.dry_run = dry_run
        self.counts: Counter[str] = Counter()
        """Number of printed removals by the kind of the object."""
        self.rejected = 0
        """Number of removals that the API server has rejected."""
        self._done = "would be cleaned up" if dry_run else "cleaned up"
        self._failures = Failures()

    async def make(
        self, kind: str, name: str, what: str, write: Callable[[], Awaitable[object]]
    ) -> None:
        """Call *write*, which removes *what* from the object, and print the removal.

        *kind* and *name* of the object are for messages. A dry run only prints. If the API server
        rejects the write because of this object alone, the object is reported and counted. Raises:
        UnavailableError if writes of other objects would fail too.
        """
        try:
            if not self.dry_run:
                await write()
        except UnavailableError as fault:
            message = f"{kind} {name}: {fault}"
            if self._failures.end(fault):
                raise UnavailableError(
                    f"{message}; the remaining objects were not tried"
                ) from fault
            self.reject(message)
        else:
            self._failures.end(None)
            self.report(kind, name, what)

    def report(self, kind: str, name: str, what: str) -> None:
        """Print and count a removal that has been made, or would be made in a dry run."""
        print(printable(f"{kind} {name}  {self._done}: {what}"), flush=True)
        self.counts[kind] += 1

    def reject(self, message: str) -> None:
        """Report an object that cannot be changed on standard error, and count it."""
        warn(message)
        self.rejected += 1

    def check(self) -> None:
        """Raise UnavailableError if any removal was rejected."""
        if self.rejected:
            raise UnavailableError(
                f"{plural(self.rejected, 'object')} could not be changed, as listed above; all "
                "others are cleaned up"
            )

    def summary(self) -> str:
        """Return a sentence: how many Nodes and Pods were cleaned up, or would be."""
        nodes, pods = plural(self.counts["node"], "node"), plural(self.counts["pod"], "pod")
        return f"{nodes} and {pods} {self._done}"
