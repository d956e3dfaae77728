{{/* Name of the release's objects; with a function, (list $ "cutouts"), name of what belongs to that. */}}
{{- define "stampede.fullname" -}}
{{- .Values.fullnameOverride | default .Release.Name -}}
{{- end }}
{{- define "stampede.name" -}}
{{- printf "%s-%s" (include "stampede.fullname" (index . 0)) (index . 1) -}}
{{- end }}

{{/* Labels by which pods are found, and those of every object: (list $ COMPONENT). They outlive upgrades. */}}
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

{{/* A value as text. A large number stays 16777216, which Go would print as 1.6777216e+07. */}}
{{- define "stampede.text" -}}
{{- if kindIs "string" . }}{{ . }}{{ else }}{{ toJson . }}{{ end -}}
{{- end }}

{{/* Functions that there are, as a YAML list: those enabled, and `replicate` only with a second site. */}}
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

{{/* The functions that take alerts, and the table that each fills. */}}
{{- define "stampede.tables" -}}
cutouts: cutouts
lightcurves: detections
{{- end }}

{{/*
Consumer group of a source and the function it feeds: (list $ "lsst" $source "cutouts"). It must never change, and be no
other release's, which would get half of the alerts.
*/}}
{{- define "stampede.group" -}}
{{- $default := printf "%s-%s" (index . 0).Release.Namespace (include "stampede.name" (list (index . 0) (index . 1))) -}}
{{- printf "%s-%s" ((index . 2).group | default $default) (index . 3) -}}
{{- end }}
{{/* Name of a source for a function: (list $ "lsst" "cutouts"). */}}
{{- define "stampede.source" -}}
{{- printf "%s-%s-%s" (include "stampede.fullname" (index . 0)) (index . 1) (index . 2) -}}
{{- end }}

{{/* What Pod Security's strictest profile asks for, in the fields that Knative allows. */}}
{{- define "stampede.securityContext" -}}
runAsNonRoot: true
runAsUser: 65532
readOnlyRootFilesystem: true
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* What all pods share. Fields that Knative has behind feature flags are there only where they are set. */}}
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

{{/* Pods are made anew when keys change that are kept in the release. */}}
{{- define "stampede.podAnnotations" -}}
{{- $keys := printf "%s %s %s %s" .Values.store.accessKey .Values.store.secretKey .Values.replica.accessKey .Values.replica.secretKey -}}
checksum/keys: {{ sha256sum $keys | trunc 16 | quote }}
{{- with .Values.podAnnotations }}
{{ toYaml . }}
{{- end }}
{{- end }}
