"""Write the pages about the settings: docs/configuration.md and docs/settings.md."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from core.config.schema import Schema, Setting, allowed, fields_of, settings
from core.policies.all import POLICIES
from core.setting_types.structure import FIRST_PAGE

FIRST_PAGE_HEAD: Final = """# Configuration

One file configures all programs, and every setting has a default. `mode: enforce` alone is a
complete configuration; without it, Ebb only reports its plan. In a managed cluster (EKS, GKE,
AKS), enable surge moves too, with [their component](surge.md#enable). The table has the settings
to know first; [an example](#an-example) shows some more, and [settings.md](settings.md) lists
all.

```yaml
apiVersion: kube-ebb.io/v1alpha1
kind: EbbConfiguration
mode: enforce
# In a managed cluster also:
# surge: {mode: enabled}
```

| setting | default | when to change it |
|---|---|---|
"""
FIRST_PAGE_END: Final = """
## An example

These are the settings that clusters usually change:

```yaml
apiVersion: kube-ebb.io/v1alpha1
kind: EbbConfiguration
mode: enforce                         # observe: only report the plan
thresholds: {cpu: 90%, memory: 90%}   # more room for rollouts and scale-outs than with 95%
budgets:                              # for the cluster: numbers of nodes, or percentages
  maxMarked: 30%                      # marked at the same time
  maxNewMarks: 5%                     # marked within 10 minutes
  minNodes: 3                         # remain when all marked nodes are removed
pools:                                # only nodes in a pool are removed
- name: batch
  selector: {matchLabels: {pool: batch}}
  thresholds: {cpu: 100%, memory: 95%}   # pods of batch jobs may wait for a node
- name: web
  selector: {matchLabels: {pool: web}}
  minNodes: 2
prices:                               # for an hour; the first matching entry counts, otherwise 0
- {nodeSelector: {node.kubernetes.io/instance-type: m5.large}, price: "0.096"}
- {nodeSelector: {node.kubernetes.io/instance-type: m5.xlarge}, price: "0.192"}
schedule:                             # marks, moves and evictions begin only at night
- {start: "0 20 * * mon-fri", duration: 10h, timeZone: Europe/Berlin}
leavingTaints: [example.com/maintenance]   # the taint of your drain tool
surge: {mode: enabled}                # pods of Deployments move without eviction: surge.md
```

`ebb config schema` prints a JSON Schema for editors, and `ebb config validate FILE...` reports
every error. The running controller reloads a changed file as a whole, or not at all.
`ebb-controller` reads `clusterAutoscaler` only when it starts, `ebb-webhook` reads `webhook`, and
`ebb-extender` reads `extender`. Restart a program after a change of these.
"""
HEAD: Final = """# All settings

[configuration.md](configuration.md) has the settings to know first. `make fix` generates both
pages from the settings in `core/config`. `ebb config schema` prints the settings as JSON Schema
for editors. `ebb config validate FILE...` reports all errors of a file at once. A setting that is
missing or null has its default. The schema rejects null, so that an editor shows a forgotten
value. The last sentence of each meaning says when to change the setting.

One file serves all programs; each program ignores the sections of the others. `ebb-controller`
reloads a changed file completely or, if it has an error, not at all. A program in the column
*restart* reads the setting only when it starts. `ebb-controller` rejects a changed file that
changes such a setting of its own; restart `ebb-controller` to use the file.

## Settings of the cluster

"""
COLUMNS: Final = """| setting | default | allowed | meaning | restart |
|---|---|---|---|---|
"""
POLICY_HEAD: Final = """
## Settings of policies and of the thesis

The default policy needs none of these. They belong to other [policies](policies.md), or reproduce
[the thesis](design/thesis.md).

"""
DEFAULTS_HEAD: Final = """
## Defaults of other policies

Only ClusterThreshold uses `thresholds` (also those of `pools`), `usableCapacity` and the order of
`prices`, and only ClusterThreshold and NodeUtilization use `hysteresis`. Other policies ignore
these settings. They have the following defaults; a value in the file takes precedence.
[policies.md](policies.md) describes the rules.

| policy | setting | default |
|---|---|---|
"""


def first_page() -> str:
    """Return docs/configuration.md, as Markdown: the settings that a new user may need."""
    shown = (one for one in settings() if FIRST_PAGE in one.schema and "[]" not in one.path)
    rows = ((_name(one), _default(one.schema) or "none", when(one)) for one in shown)
    return FIRST_PAGE_HEAD + "".join(map(_row, rows)) + FIRST_PAGE_END


def reference() -> str:
    """Return docs/settings.md, as Markdown: all settings."""
    found = list(settings())
    return (
        HEAD
        + _table(one for one in found if not one.of_policy)
        + POLICY_HEAD
        + _table(one for one in found if one.of_policy)
        + DEFAULTS_HEAD
        + "".join(_policies())
    )


def when(setting: Setting) -> str:
    """Return the last sentence of the meaning of a setting, which says when to change it."""
    description: str = setting.schema["description"]
    return description.replace("\n", " ").rpartition(". ")[2]


def _name(setting: Setting) -> str:
    inner = ", ".join(f"`{name}`" for name in fields_of(setting.schema.get("items", {})))
    return f"`{setting.path}`" + (f": {inner}" if inner else "")


def _default(one: Schema) -> str:
    default = one.get("default")
    if default is None:
        return ""
    plain = str(default).lower() if isinstance(default, bool) else default
    return f"`[{', '.join(default)}]`" if isinstance(default, list) else f"`{plain}`"


def _table(shown: Iterable[Setting]) -> str:
    rows = (
        (
            f"`{one.path}`",
            _default(one.schema),
            allowed(one.schema).replace("|", "\\|"),
            one.schema.get("description", "").replace("\n", " "),
            ", ".join(one.restart),
        )
        for one in shown
    )
    return COLUMNS + "".join(map(_row, rows))


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def _policies() -> Iterator[str]:
    for name, policy in POLICIES.items():
        for path, default in _paths(policy.defaults):
            yield _row((name, f"`{path}`", f"`{default}`"))


def _paths(given: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, object]]:
    for name, value in given.items():
        if isinstance(value, Mapping):
            yield from _paths(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value
