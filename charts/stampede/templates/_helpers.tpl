{{/* Name of the release's objects; stampede.name: name of a function's objects, (list $ "cutouts"). */}}
{{- define "stampede.fullname" -}}
{{- .Values.fullnameOverride | default .Release.Name -}}
{{- end }}
{{- define "stampede.name" -}}
{{- printf "%s-%s" (include "stampede.fullname" (index . 0)) (index . 1) -}}
{{- end }}

{{/* Labels that select pods, and labels of every object: (list $ COMPONENT). Upgrades do not change selectors. */}}
{{- define "stampede.selector" -}}
app.kubernetes.io/name: stampede
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}
{{- define "stampede.labels" -}}
{{- $ := index . 0 -}}
{{ include "stampede.selector" . }}
app.kubernetes.io/part-of: stampede
app.kubernetes.io/version: {{ $.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $.Chart.Name $.Chart.Version }}
{{- end }}

{{- define "stampede.image" -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end }}

{{- define "stampede.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (ternary (include "stampede.fullname" .) "default" .Values.serviceAccount.create) -}}
{{- end }}

{{- define "stampede.broker" -}}
{{- .Values.broker.name | default (include "stampede.fullname" .) -}}
{{- end }}

{{/* A value as text. toJson keeps 16777216, which Go would print as 1.6777216e+07. */}}
{{- define "stampede.text" -}}
{{- if kindIs "string" . }}{{ . }}{{ else }}{{ toJson . }}{{ end -}}
{{- end }}

{{/* Enabled functions as a YAML list; `replicate` only with a second site. */}}
{{- define "stampede.functions" -}}
{{- range $name, $function := .Values.functions }}
{{- if and $function.enabled (or (ne $name "replicate") $.Values.replica.url) }}
- {{ $name }}
{{- end }}
{{- end }}
{{- end }}

{{/* URL of a function within the cluster: (list $ "cutouts"). */}}
{{- define "stampede.url" -}}
{{- printf "http://%s.%s.svc" (include "stampede.name" .) (index . 0).Release.Namespace -}}
{{- end }}

{{/* The functions that receive alerts, and the table of each. */}}
{{- define "stampede.tables" -}}
cutouts: cutouts
lightcurves: detections
{{- end }}

{{/*
Consumer group of a source for a function: (list $ "lsst" $source "cutouts"). It must never change. No other release may
use it: each would get only half of the alerts.
*/}}
{{- define "stampede.group" -}}
{{- printf "%s-%s" (include "stampede.groups" .) (index . 3) -}}
{{- end }}
{{/* What the consumer groups of a source begin with: (list $ "lsst" $source). */}}
{{- define "stampede.groups" -}}
{{- $default := printf "%s-%s" (index . 0).Release.Namespace (include "stampede.name" (list (index . 0) (index . 1))) -}}
{{- (index . 2).group | default $default -}}
{{- end }}
{{/* Name of a source for a function: (list $ "lsst" "cutouts"). */}}
{{- define "stampede.source" -}}
{{- printf "%s-%s-%s" (include "stampede.fullname" (index . 0)) (index . 1) (index . 2) -}}
{{- end }}

{{/* The requirements of Pod Security's strictest profile, in fields that Knative allows. */}}
{{- define "stampede.securityContext" -}}
runAsNonRoot: true
runAsUser: 65532
readOnlyRootFilesystem: true
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* Fields of all pods. Fields behind Knative's feature flags are rendered only if they are set. */}}
{{- define "stampede.pod" -}}
serviceAccountName: {{ include "stampede.serviceAccount" . }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- range $field := list "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" }}
{{- with index $.Values $field }}
{{ $field }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{/* The checksum replaces pods when keys that are given as values change. */}}
{{- define "stampede.podAnnotations" -}}
{{- $keys := printf "%s %s %s %s" .Values.store.accessKey .Values.store.secretKey .Values.replica.accessKey .Values.replica.secretKey -}}
checksum/keys: {{ sha256sum $keys | trunc 16 | quote }}
{{- with .Values.podAnnotations }}
{{ toYaml . }}
{{- end }}
{{- end }}
