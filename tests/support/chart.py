"""Generate the Helm chart's templates and schema from manifests/: `python -m tests.support.chart`.

The kustomizations own every object. A template is the same text with values in a few places, so
that both installations stay equal. The rest of manifests/charts/ebb is written by hand.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from core.config.schema import schema
from core.config.settings import ClusterAutoscaler
from core.setting_types.value_types import ADDRESS, PORT
from tests.support.flags_page import PROGRAMS

MANIFESTS: Final = Path(__file__).parents[2] / "manifests"
CHART: Final = MANIFESTS / "charts" / "ebb"
WEBHOOK: Final = 'eq .Values.admission "webhook"'
OWN_CA: Final = f"and ({WEBHOOK}) (not .Values.certManager.enabled)"
CERT_MANAGER: Final = f"and ({WEBHOOK}) .Values.certManager.enabled"
EXTENDER: Final = ".Values.extender.enabled"
STATUS: Final = (
    f'dig "clusterAutoscaler" "status" "{ClusterAutoscaler().status}" .Values.config'
    ' | splitList "/"'
)
PACKS: Final = f'and {EXTENDER} (ne (dig "extender" "score" "pack" .Values.config) "marks")'
CONDITIONS: Final = {
    "base/controller/": "",
    "base/resourcequota.yaml": "",
    "base/write-policies/registration.yaml": f"and .Values.writePolicies.enabled ({WEBHOOK})",
    "base/write-policies/": ".Values.writePolicies.enabled",
    "base/webhook/rbac-certificates.yaml": OWN_CA,
    "base/webhook/secret.yaml": OWN_CA,
    "base/webhook/": WEBHOOK,
    "components/admission-policy/": 'eq .Values.admission "policy"',
    "components/capacity-buffers/": ".Values.permissions.capacityBuffers",
    "components/cert-manager/": CERT_MANAGER,
    "components/dashboard/": ".Values.dashboard.enabled",
    "components/eviction/": ".Values.permissions.eviction",
    "components/extender/rbac-pack.yaml": PACKS,
    "components/extender/": EXTENDER,
    "components/pod-deletion-cost/": ".Values.permissions.podDeletionCost",
    "components/prometheus-operator/podmonitor.yaml": ".Values.podMonitor.enabled",
    "components/prometheus-operator/prometheusrule.yaml": ".Values.prometheusRule.enabled",
    "components/surge/": ".Values.permissions.surge",
    "components/surge-delete/": ".Values.permissions.surgeDelete",
}
"""Condition under which the objects of a folder or a file are part of a release; "": always. The
first entry that a path begins with applies."""
LEFT_OUT: Final = ("kustomization.yaml", "namespace.yaml", "base/configmap.yaml")
"""Files without a template: `helm install --create-namespace` creates the namespace, and the
configuration is a template of its own."""
_LABELS: Final = re.compile(
    r"^ *labels:\n( +)app\.kubernetes\.io/name: ebb\n.*\n.*/component: .*\n", re.MULTILINE
)


_HOST: Final = r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?"
_PATH: Final = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
REPOSITORY: Final = rf"^(?:{_HOST}/)?{_PATH}(?:/{_PATH})*$"
"""The name of an image without tag, as in the grammar of container images."""
TAG: Final = r"^(?:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?$"
CLUSTER_IP: Final = r"^[0-9A-Fa-f.:]*$"
PORTS: Final = "|".join(
    sorted(
        {
            flag.name
            for flags in PROGRAMS.values()
            for flag in flags
            if flag.format in (ADDRESS, PORT)
        }
    )
)
"""Flags with a port, which objects of the chart name too."""


CONDITION: Final = ("pattern", "not", "maxLength")
"""Conditions of a schema that its title says in words."""
README: Final = """\
# Ebb

Ebb shrinks a Kubernetes cluster gradually and without evictions: it finds nodes that the cluster
can do without, keeps new pods away from them, waits until they are empty, and lets the autoscaler
remove them. By default it evicts no pod and writes nothing (`mode: observe`).

```console
# not tested: needs a published version
helm install ebb oci://ghcr.io/kube-ebb/charts/ebb --namespace ebb-system --create-namespace
```

Before you install it, read [the guide](https://github.com/kube-ebb/ebb/blob/main/docs/install.md).
One cluster has one installation. `helm uninstall` removes everything that Ebb has written on nodes
and pods.

## Values

```yaml
{values}```
"""


class Change(NamedTuple):
    """A replacement in the text of a manifest; `{program}` is the name of its folder."""

    old: str
    """Pattern; each match is replaced."""
    new: str


BEFORE_PORTS: Final = r"(?=        ports:\n)"
EXTRA_ENV: Final = (
    "        {{- with .Values.{program}.extraEnv }}\n"
    "          {{- toYaml . | nindent 8 }}\n"
    "        {{- end }}\n"
)
EVERYWHERE: Final = (
    Change(r"(?<=namespace: )ebb-system\b", "{{ .Release.Namespace | quote }}"),
    Change(r"\bebb-system\b", "{{ .Release.Namespace }}"),
)
IN_FILES: Final = {
    "deployment.yaml": (
        Change(r"(?<=\n  replicas: )2", "{{ .Values.{program}.replicas }}"),
        Change(
            r"(?<= image: )ghcr.io/kube-ebb/ebb\n",
            '{{ include "ebb.image" . | quote }}\n'
            "        {{- with .Values.image.pullPolicy }}\n"
            "        imagePullPolicy: {{ . | quote }}\n"
            "        {{- end }}\n",
        ),
        Change(
            r"(?=    spec:\n      serviceAccountName: )",
            "        {{- with .Values.{program}.podLabels }}\n"
            "        {{- toYaml . | nindent 8 }}\n"
            "        {{- end }}\n"
            "      {{- with .Values.{program}.podAnnotations }}\n"
            "      annotations:\n"
            "        {{- toYaml . | nindent 8 }}\n"
            "      {{- end }}\n",
        ),
        Change(
            r"(?<= priorityClassName: )system-cluster-critical",
            "{{ .Values.{program}.priorityClassName | quote }}",
        ),
        Change(
            r"(?<=/etc/ebb/config.yaml\]\n)",
            "        {{- with .Values.{program}.extraArgs }}\n"
            "        args:\n"
            "          {{- toYaml . | nindent 10 }}\n"
            "        {{- end }}\n",
        ),
        Change(
            r"(?<=\n        resources:\n)(          .*\n)+",
            "          {{- toYaml .Values.{program}.resources | nindent 10 }}\n",
        ),
        Change(
            r"(?=      containers:\n)",
            "      {{- with .Values.image.pullSecrets }}\n"
            "      imagePullSecrets:\n"
            "        {{- toYaml . | nindent 8 }}\n"
            "      {{- end }}\n"
            "      {{- with .Values.{program}.nodeSelector }}\n"
            "      nodeSelector:\n"
            "        {{- toYaml . | nindent 8 }}\n"
            "      {{- end }}\n",
        ),
        Change(
            r"(?=      affinity:\n)",
            "      {{- with .Values.{program}.tolerations }}\n"
            "        {{- toYaml . | nindent 6 }}\n"
            "      {{- end }}\n",
        ),
        Change(
            r"      affinity:\n(?:        .*\n)+",
            "      {{- with .Values.{program}.affinity }}\n"
            "      affinity:\n"
            "        {{- toYaml . | nindent 8 }}\n"
            "      {{- else }}\n"
            r"\g<0>"
            "      {{- end }}\n",
        ),
    ),
    "controller/deployment.yaml": (Change(BEFORE_PORTS, EXTRA_ENV),),
    "extender/deployment.yaml": (
        Change(
            BEFORE_PORTS,
            "        {{- with .Values.extender.extraEnv }}\n"
            "        env:\n"
            "          {{- toYaml . | nindent 8 }}\n"
            "        {{- end }}\n",
        ),
        Change(
            r"(?<=            port: prioritize\n)",
            '            {{- if dig "extender" "certDir" "" .Values.config }}\n'
            "            scheme: HTTPS\n"
            "            {{- end }}\n",
        ),
    ),
    "extender/service.yaml": (
        Change(
            r"  clusterIP: .*\n",
            "  {{- with .Values.extender.clusterIP }}\n"
            "  clusterIP: {{ . | quote }}\n"
            "  {{- end }}\n",
        ),
    ),
    "webhook/deployment.yaml": (
        Change(BEFORE_PORTS, EXTRA_ENV),
        Change(
            r"(?=      securityContext:\n        runAsNonRoot: )",
            "      {{- if .Values.webhook.hostNetwork }}\n"
            "      hostNetwork: true\n"
            "      dnsPolicy: ClusterFirstWithHostNet\n"
            "      {{- end }}\n",
        ),
        Change(
            r"(?=      volumes:\n)",
            "        {{- if .Values.certManager.enabled }}\n"
            "        - name: tls\n"
            "          mountPath: /etc/ebb-tls\n"
            "          readOnly: true\n"
            "        {{- end }}\n",
        ),
        Change(
            r"(?=      tolerations:\n)",
            "      {{- if .Values.certManager.enabled }}\n"
            "      - name: tls\n"
            "        secret:\n"
            "          secretName: ebb-webhook-tls\n"
            "          defaultMode: 0440\n"
            "      {{- end }}\n",
        ),
    ),
    "mutatingwebhookconfiguration.yaml": (
        Change(
            r"(?<=  name: ebb-webhook\n)(?=  labels:)",
            "  {{- if .Values.certManager.enabled }}\n"
            "  annotations:\n"
            "    cert-manager.io/inject-ca-from: {{ .Release.Namespace }}/ebb-webhook\n"
            "  {{- end }}\n",
        ),
    ),
    "rbac-autoscaler.yaml": (
        Change(
            r"(?<=namespace: )kube-system",
            f"{{{{ {STATUS} | first | quote }}}}",
        ),
        Change(
            r"(?<=\[)cluster-autoscaler-status(?=\])",
            f"{{{{ {STATUS} | last | quote }}}}",
        ),
    ),
}
"""Changes by the end of a file's path; each must match."""


def templates() -> dict[Path, str]:
    """Return the text of every template by its path in the chart."""
    found = {}
    for path in sorted(MANIFESTS.glob("base/**/*.yaml")) + sorted(
        MANIFESTS.glob("components/**/*.yaml")
    ):
        name = path.relative_to(MANIFESTS).as_posix()
        condition = next((it for part, it in CONDITIONS.items() if name.startswith(part)), None)
        if condition is not None and not name.endswith(LEFT_OUT):
            target = Path("templates", *path.relative_to(MANIFESTS).parts[1:])
            found[target] = _template(name, path.read_text("utf-8"), condition)
    return found


def _template(name: str, text: str, condition: str) -> str:
    program = name.split("/")[-2]
    text = text.replace("{{", '{{ "{{" }}')  # what Prometheus and Grafana expand
    for change in _changes(name):
        new = change.new.replace("{program}", program)
        text, count = re.subn(change.old, new, text)
        assert count or change in EVERYWHERE, (name, change)
    text = _LABELS.sub(_labelled, text)
    head = "{{- /* Generated by make fix. */ -}}\n"
    return head + (f"{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n" if condition else text)


def _changes(name: str) -> Iterator[Change]:
    yield from EVERYWHERE
    for end, changes in IN_FILES.items():
        if name.endswith(end):
            yield from changes


def _labelled(match: re.Match[str]) -> str:
    """Add the labels of the release after those of the manifest."""
    space = match[1]
    return f'{match[0]}{space}{{{{- include "ebb.labels" . | nindent {len(space)} }}}}\n'


def values_schema() -> dict[str, Any]:
    """Return the JSON schema of values.yaml, with the schema of the configuration in it."""
    settings = schema()["properties"]
    own = {name: it for name, it in settings.items() if name not in {"apiVersion", "kind"}}
    config = _in_words(_section(**own))
    text = {"type": "string"}
    texts = {"type": "object", "additionalProperties": text}
    flag = {"type": "boolean"}
    enabled = _section(enabled=flag)
    program = {
        "replicas": {"type": "integer", "minimum": 1, "maximum": 10},
        "extraArgs": {
            "type": "array",
            "items": _other_than(f"^({PORTS})", "a flag that sets no port, as objects name them"),
        },
        "extraEnv": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": _other_than("^POD_", "a variable that the chart does not set")
                },
            },
        },
        "resources": {"type": "object"},
        "podAnnotations": texts,
        "podLabels": {
            **texts,
            "patternProperties": {
                r"^app\.kubernetes\.io/": {"const": "no value, as the chart sets this label"}
            },
        },
        "priorityClassName": text,
        "nodeSelector": texts,
        "tolerations": {"type": "array", "items": {"type": "object"}},
        "affinity": {"type": "object"},
    }
    names = "podDeletionCost", "capacityBuffers", "surge", "surgeDelete", "eviction"
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **_section(
            image=_section(
                repository=_text(REPOSITORY, "the name of an image without tag", 255),
                tag=_text(TAG, "the tag of an image, or empty"),
                digest=_text("^(sha256:[0-9a-f]{64})?$", "sha256: and 64 digits, or empty"),
                pullPolicy={"enum": ["", "Always", "IfNotPresent", "Never"]},
                pullSecrets={"type": "array", "items": _section(name=text)},
            ),
            config=config,
            admission={"enum": ["webhook", "policy"]},
            certManager=enabled,
            controller=_section(**program),
            webhook=_section(hostNetwork=flag, **program),
            extender=_section(
                enabled=flag, clusterIP=_text(CLUSTER_IP, "an IP address, or empty"), **program
            ),
            permissions=_section(**dict.fromkeys(names, flag)),
            podMonitor=enabled,
            prometheusRule=enabled,
            dashboard=enabled,
            writePolicies=enabled,
            cleanupOnUninstall=flag,
            **{"global": {"type": "object"}},  # Helm adds it to the values of every chart
        ),
    }


def _section(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _text(pattern: str, allowed: str, most: int | None = None) -> dict[str, Any]:
    """Return the schema of a text that matches *pattern*; *allowed*: the same in words."""
    length = {} if most is None else {"maxLength": most}
    schema: dict[str, Any] = {"type": "string", "pattern": pattern, "title": allowed, **length}
    return dict(_in_words(schema))


def _other_than(pattern: str, allowed: str) -> dict[str, Any]:
    """Return the schema of a text that does not match *pattern*; *allowed*: the same in words."""
    return dict(_in_words({"type": "string", "not": {"pattern": pattern}, "title": allowed}))


def _in_words(part: Any) -> Any:
    """Return a part of a schema that rejects a text by words, not by a pattern.

    Helm prints the condition that a value violates, and a schema has no message of its own. So a
    text that matches no pattern must be equal to the words, which no text is.
    """
    if isinstance(part, list):
        return [_in_words(one) for one in part]
    if not isinstance(part, dict):
        return part
    if "title" not in part or not {"pattern", "not"} & part.keys():
        return {name: _in_words(one) for name, one in part.items()}
    condition = {name: part[name] for name in CONDITION if name in part}
    others = {name: one for name, one in part.items() if name not in CONDITION}
    return {**others, "if": condition, "else": {"const": part["title"]}}


def readme() -> str:
    """Return the page of the chart, which sites with charts show."""
    return README.format(values=(CHART / "values.yaml").read_text("utf-8"))


def files() -> dict[Path, str]:
    """Return the text of every generated file by its path in the chart."""
    made = json.dumps(values_schema(), indent=1) + "\n"
    return {**templates(), Path("values.schema.json"): made, Path("README.md"): readme()}


if __name__ == "__main__":
    for path, text in files().items():
        target = CHART / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf-8")
