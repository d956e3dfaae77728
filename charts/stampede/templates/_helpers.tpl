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
{{- with $.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Name of this installation among those that share a bucket. */}}
{{- define "stampede.installation" -}}
{{- printf "%s-%s" .Release.Namespace (include "stampede.fullname" .) -}}
{{- end }}

{{/* The image. `global.imageRegistry` replaces the registry of its repository: what comes before the first slash and looks like a host. */}}
{{- define "stampede.image" -}}
{{- /* Releases of the chart before 0.2.0 had this default. */}}
{{- $repository := .Values.image.repository | default (.Release.IsUpgrade | ternary "dev.local/stampede" "") -}}
{{- with (.Values.global).imageRegistry -}}
{{- $repository = printf "%s/%s" (trimSuffix "/" .) (regexReplaceAll "^(localhost|[^/]*[.:][^/]*)/" $repository "") -}}
{{- end -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" $repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end }}

{{/* Port of a function's metrics. Knative allows one declared port; its sidecar has 8012, 8013, 8022, 8112, 9090, 9091. */}}
{{- define "stampede.metricsPort" -}}
9400
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

{{/* URL to which the store sends notifications. */}}
{{- define "stampede.notificationsUrl" -}}
{{- .Values.setup.notificationsUrl | default (printf "%s/" (include "stampede.url" (list . "notifications"))) -}}
{{- end }}

{{/* The functions that receive alerts, and the table of each. */}}
{{- define "stampede.tables" -}}
cutouts: cutouts
lightcurves: detections
{{- end }}

{{/*
Consumer group of a source: (list $ "lsst" $source). It must never change. No other release may use it: each would get only
half of the alerts. A KafkaSource reads for one function; the name of its group, and its own, end with that.
*/}}
{{- define "stampede.group" -}}
{{- $default := printf "%s-%s" (index . 0).Release.Namespace (include "stampede.name" (list (index . 0) (index . 1))) -}}
{{- (index . 2).group | default $default -}}
{{- end }}
{{/* Name of a source: (list $ "lsst"). */}}
{{- define "stampede.source" -}}
{{- printf "%s-%s" (include "stampede.fullname" (index . 0)) (index . 1) -}}
{{- end }}

{{/* Least number of pods of a source, or of consumers of a KafkaSource: (list $ SOURCE). */}}
{{- define "stampede.replicas" -}}
{{- $usual := (index . 0).Values.source.replicas -}}
{{- with index . 1 -}}
{{- if .autoscaling }}{{ .autoscaling.min | default (min $usual .autoscaling.max) }}{{ else }}{{ .replicas | default $usual }}{{ end -}}
{{- end -}}
{{- end }}

{{/* By default the requirements of Pod Security's strictest profile, in fields that Knative allows. */}}
{{- define "stampede.securityContext" -}}
{{- toYaml .Values.securityContext -}}
{{- end }}

{{/*
What the values add to each container that runs Stampede.

stampede.extraEnv: variables. stampede.extra: volumes and mounts, (list $ FIELD), where FIELD is `volumes` or `volumeMounts`.
*/}}
{{- define "stampede.extraEnv" -}}
{{- with .Values.extraEnv }}{{ toYaml . }}{{ end -}}
{{- end }}
{{- define "stampede.extra" -}}
{{- with get (index . 0).Values (ternary "extraVolumes" "extraVolumeMounts" (eq (index . 1) "volumes")) }}{{ toYaml . }}{{ end -}}
{{- end }}

{{/*
Fields of all pods. Fields behind Knative's feature flags are rendered only if they are set.

stampede.podOf: those of a function, (list $ $function). Its own fields replace those of all pods.
*/}}
{{- define "stampede.pod" -}}
{{- include "stampede.podOf" (list . dict) -}}
{{- end }}
{{- define "stampede.podOf" -}}
{{- $own := index . 1 -}}
{{- with index . 0 -}}
serviceAccountName: {{ include "stampede.serviceAccount" . }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .Values.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- $all := .Values }}
{{- range $field := list "priorityClassName" "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" }}
{{- with hasKey $own $field | ternary (index $own $field) (index $all $field) }}
{{- if kindIs "string" . }}
{{ $field }}: {{ . }}
{{- else }}
{{ $field }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/*
Labels and annotations that are given as values: (list $ $function "podLabels"). Those of the function win over those of all.
*/}}
{{- define "stampede.given" -}}
{{- $name := index . 2 -}}
{{- with mergeOverwrite dict (deepCopy (index (index . 0).Values $name | default dict)) (deepCopy (index (index . 1) $name | default dict)) -}}
{{- toYaml . -}}
{{- end -}}
{{- end }}

{{/* The checksum replaces pods when a key of events that is given as value changes. */}}
{{- define "stampede.podAnnotations" -}}
{{ include "stampede.checksum" . }}
{{- with .Values.podAnnotations }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- define "stampede.checksum" -}}
checksum/keys: {{ printf "%s %s" (.Values.eventKey).value (.Values.eventKey).second | sha256sum | trunc 16 | quote }}
{{- end }}

{{/* Whether this release has a key of events: a function takes them, and the values do not turn the key off. */}}
{{- define "stampede.hasEventKey" -}}
{{- if .Values.eventKey.enabled }}{{ range include "stampede.functions" . | fromYamlArray }}{{ include "stampede.function.takesEvents" . }}{{ end }}{{ end -}}
{{- end }}

{{/* Whether tokens prove senders to functions: `disabled`, `accepted` or `required`. */}}
{{- define "stampede.oidc" -}}
{{- (.Values.oidc).mode | default "disabled" -}}
{{- end }}

{{/* For whom those tokens are; stampede.audienceOf: as a field of a sink. */}}
{{- define "stampede.audience" -}}
{{- .Values.oidc.audience | default (printf "stampede/%s/%s" .Release.Namespace (include "stampede.fullname" .)) -}}
{{- end }}
{{- define "stampede.audienceOf" -}}
{{- if ne (include "stampede.oidc" .) "disabled" -}}
audience: {{ include "stampede.audience" . | quote }}
{{- end }}
{{- end }}

{{/* Whether a function shows the issuer a token of its own: only to Kubernetes. */}}
{{- define "stampede.issuerToken" -}}
{{- if hasPrefix "https://kubernetes.default" .Values.oidc.issuer }}yes{{ end -}}
{{- end }}

{{/* Whether senders that cannot set headers have the key as an attribute. */}}
{{- define "stampede.keyAsAttribute" -}}
{{- if and (include "stampede.hasEventKey" .) (ne (include "stampede.oidc" .) "required") }}yes{{ end -}}
{{- end }}

{{/* The Secret with the key of events; stampede.eventKeyName: the name in it of `key` or `second`, (list $ "key"). */}}
{{- define "stampede.eventKeySecret" -}}
{{- .Values.eventKey.existingSecret | default (include "stampede.name" (list . "event-key")) -}}
{{- end }}

{{- define "stampede.eventKeyName" -}}
{{- $values := (index . 0).Values.eventKey -}}
{{- $own := get (dict "key" "event-key" "second" "second-event-key") (index . 1) -}}
{{- if $values.existingSecret }}{{ get ($values.secretKeys | default dict) (index . 1) | default $own }}{{ else }}{{ $own }}{{ end -}}
{{- end }}

{{/*
The key of events, for objects that cannot read a Secret. It is resolved once, because a random one would differ at each call. The
Secret of an earlier installation keeps its key. Nothing if only a cluster knows it: `lookup` gives a list, even of nothing, where
there is one, and nothing in a renderer such as Argo CD's or `helm template`, which must never draw a key.
*/}}
{{- define "stampede.eventKey" -}}
{{- $values := .Values.eventKey -}}
{{- if not (hasKey $values "resolved") -}}
{{- include "stampede.check" . -}}
{{- $key := $values.value -}}
{{- if not $key -}}
{{- $secret := lookup "v1" "Secret" .Release.Namespace (include "stampede.eventKeySecret" .) | default dict -}}
{{- $name := include "stampede.eventKeyName" (list . "key") -}}
{{- $key = dig "data" $name "" $secret | b64dec -}}
{{- end -}}
{{- if and (not $key) (not $values.existingSecret) .Values.store.secretKey -}}
{{- $key = printf "event key of %s in %s: %s" (include "stampede.fullname" .) .Release.Namespace .Values.store.secretKey | sha256sum | trunc 40 -}}
{{- end -}}
{{- if not $key -}}
{{- if lookup "v1" "Secret" .Release.Namespace "" -}}
{{- if $values.existingSecret -}}
{{- fail (printf "eventKey.existingSecret: there is no Secret %s with %s in this namespace: timers and KafkaSources need its value" $values.existingSecret (include "stampede.eventKeyName" (list . "key"))) -}}
{{- end -}}
{{- $key = randAlphaNum 40 -}}
{{- else if not $values.existingSecret -}}
{{- fail "eventKey.existingSecret and eventKey.value are not set: a renderer without a cluster can neither read the key nor keep one that it draws. Make a Secret with event-key and name it, or give the value" -}}
{{- end -}}
{{- end -}}
{{- $_ := set $values "resolved" $key -}}
{{- end -}}
{{- $values.resolved -}}
{{- end }}

{{/* Whether a hook gives the key to the timers, because it is in a Secret that the renderer cannot read. */}}
{{- define "stampede.keyByHook" -}}
{{- if and (include "stampede.keyAsAttribute" .) .Values.eventKey.existingSecret (not (include "stampede.eventKey" .)) }}yes{{ end -}}
{{- end }}
