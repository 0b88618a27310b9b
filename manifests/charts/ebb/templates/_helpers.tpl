{{/* Labels of every object and pod, in addition to those that selectors use. */}}
{{- define "ebb.labels" -}}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: ebb
app.kubernetes.io/version: {{ .Chart.AppVersion }}
{{- end }}

{{/* The image of all programs. */}}
{{- define "ebb.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end }}

{{/* The configuration file. */}}
{{- define "ebb.config" -}}
{{- $head := dict "apiVersion" "kube-ebb.io/v1alpha1" "kind" "EbbConfiguration" -}}
{{- $config := deepCopy .Values.config -}}
{{- if and .Values.certManager.enabled (eq .Values.admission "webhook") -}}
{{- $_ := set $config "webhook" (dict "certDir" "/etc/ebb-tls") -}}
{{- end -}}
{{- toYaml (merge $head $config) -}}
{{- end }}
