{{/*
The container of a function: in the pods of its Knative Service, or in those of a source.

stampede.function.container: all but name, ports and probes: (list $ "cutouts"), or with what it needs to read Kafka itself:
(list $ "cutouts" (dict "env" ENV "mounts" MOUNTS "settings" SETTINGS)).
stampede.function.files: its volumes: (list $ "cutouts" FIELD), where FIELD is `volumes` or `volumeMounts`.
*/}}
{{- define "stampede.function.container" -}}
{{- $ := index . 0 -}}
{{- $name := index . 1 -}}
{{- $input := rest (rest .) | first | default dict -}}
{{- $function := include "stampede.function.values" (list $ $name) | fromYaml -}}
{{- $asked := include "stampede.function.asked" . | fromYaml -}}
image: {{ include "stampede.image" $ }}
imagePullPolicy: {{ $.Values.image.pullPolicy }}
args: [serve, {{ ternary "read" $name (eq $name "bulk") }}]
env:
  - name: STAMPEDE_HOST
    value: 0.0.0.0
  - name: STAMPEDE_PORT
    value: "8080"
  {{- if $input }}
  - name: STAMPEDE_FROM_KAFKA
    value: "true"
  {{- $input.env | nindent 2 }}
  {{- else }}
  - name: STAMPEDE_METRICS_PORT
    value: {{ include "stampede.metricsPort" $ | quote }}
  {{- end }}
  {{- include "stampede.env.store" (list $ $name) | nindent 2 }}
  {{- if has "replica" (include "stampede.function.stores" $name | fromYamlArray) }}
  {{- include "stampede.env.replica" $ | trim | nindent 2 }}
  {{- end }}
  {{- if include "stampede.function.takesEvents" $name }}
  {{- if or (eq $name "notifications") (include "stampede.keyAsAttribute" $) }}
  {{- include "stampede.env.key" $ | nindent 2 }}
  {{- end }}
  {{- include "stampede.env.senders" $ | trim | nindent 2 }}
  {{- end }}
  {{- if eq $name "notifications" }}
  # Used until its SinkBinding sets K_SINK, a few seconds later: without a reachable sink it answers 503.
  - name: STAMPEDE_SINK
    value: http://broker.invalid/
  {{- end }}
  {{- if $asked }}
  {{- include "stampede.env.ledger" (list $ (include "stampede.ledgerSource" $) $asked) | trim | nindent 2 }}
  {{- end }}
  {{- if include "stampede.function.tokens" (list $ $name) }}
  - name: STAMPEDE_TOKENS
    value: /etc/stampede/tokens/tokens
  {{- end }}
  {{- if eq $name "reconcile" }}
  {{- if $.Values.proofs.existingSecret }}
  - name: STAMPEDE_PROOF_KEY
    value: /etc/stampede/proofs/proof.pem
  {{- end }}
  - name: STAMPEDE_INSTALLATION
    value: {{ include "stampede.installation" $ | quote }}
  {{- if not (has "thumbnails" (include "stampede.functions" $ | fromYamlArray)) }}
  # Nobody takes the probes of notifications.
  - name: STAMPEDE_NOTIFICATION_PATIENCE_SECONDS
    value: "0"
  {{- end }}
  {{- end }}
  {{- if $function.spool }}
  - name: STAMPEDE_SPOOL
    value: /spool
  {{- end }}
  {{- include "stampede.env.settings" (list $ $function.settings $input.settings $.Values.settings) | trim | nindent 2 }}
  {{- include "stampede.extraEnv" $ | nindent 2 }}
securityContext:
  {{- include "stampede.securityContext" $ | nindent 2 }}
resources:
  {{- toYaml $function.resources | nindent 2 }}
volumeMounts:
  {{- include "stampede.function.files" (list $ $name "volumeMounts") | nindent 2 }}
  {{- with $input.mounts }}
  {{- . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "stampede.function.files" -}}
{{- $ := index . 0 -}}
{{- $name := index . 1 -}}
{{- $field := index . 2 -}}
{{- $function := include "stampede.function.values" (list $ $name) | fromYaml -}}
{{- $stores := include "stampede.function.stores" $name | fromYamlArray -}}
{{- $asked := include "stampede.function.asked" . | fromYaml -}}
{{- include "stampede.files" (concat (list $ $name $field) $stores) | replace "64Mi" ($function.temporary | default "64Mi") }}
{{- include "stampede.files.kafka" (list $field $asked (include "stampede.ledgerSource" $)) | trim | nindent 0 }}
{{- if include "stampede.function.takesEvents" $name }}
{{- include "stampede.files.senders" (list $ $field) | nindent 0 }}
{{- end }}
{{- with include "stampede.function.tokens" (list $ $name) }}
- name: tokens
  {{- if eq $field "volumes" }}
  secret: {secretName: {{ . }}{{ with $.Values.tokens.secretKey }}, {{ include "stampede.items" (list (list "tokens") (dict "tokens" .)) }}{{ end }}}
  {{- else }}
  mountPath: /etc/stampede/tokens
  readOnly: true
  {{- end }}
{{- end }}
{{- if and (eq $name "reconcile") $.Values.proofs.existingSecret }}
- name: proofs
  {{- if eq $field "volumes" }}
  secret: {secretName: {{ $.Values.proofs.existingSecret }}, {{ include "stampede.items" (list (list "proof.pem") (dict "proof.pem" $.Values.proofs.secretKey)) }}}
  {{- else }}
  mountPath: /etc/stampede/proofs
  readOnly: true
  {{- end }}
{{- end }}
{{- include "stampede.extra" (list $ $field) | nindent 0 }}
{{- with $function.spool }}
- name: spool
  {{ ternary (printf "emptyDir: {medium: Memory, sizeLimit: %s}" .) "mountPath: /spool" (eq $field "volumes") }}
{{- end }}
{{- end }}

{{/* The values of a function, or of `alerts` in the pods of sources: (list $ "cutouts"). */}}
{{- define "stampede.function.values" -}}
{{- $ := index . 0 -}}
{{- ternary $.Values.source.alerts (get $.Values.functions (index . 1)) (eq (index . 1) "alerts") | toYaml -}}
{{- end }}

{{/* The stores that a function has keys for, as a YAML list. */}}
{{- define "stampede.function.stores" -}}
{{- ternary (list "store" "replica") (list "store") (has . (list "replicate" "reconcile" "scrub")) | toYaml -}}
{{- end }}

{{/* Whether events start the function; the others answer questions. */}}
{{- define "stampede.function.takesEvents" -}}
{{- if not (has . (list "read" "bulk")) }}yes{{ end -}}
{{- end }}

{{/* The Secret with the tokens of its users: (list $ "read"). */}}
{{- define "stampede.function.tokens" -}}
{{- if not (include "stampede.function.takesEvents" (index . 1)) }}{{ (index . 0).Values.tokens.existingSecret }}{{ end -}}
{{- end }}

{{/* The source whose Kafka the function asks, for the ledger: (list $ "read"). */}}
{{- define "stampede.function.asked" -}}
{{- $name := include "stampede.ledgerSource" (index . 0) -}}
{{- if and $name (eq (index . 1) "read") }}{{ index (index . 0).Values.sources $name | toYaml }}{{ end -}}
{{- end }}

{{/* Name of that source: the given one, or else the only one if its Kafka wants no keys; nothing if there is none. */}}
{{- define "stampede.ledgerSource" -}}
{{- $given := .Values.ledger.source -}}
{{- if and $given (hasKey .Values.sources $given) -}}
{{- $given -}}
{{- else if and (not $given) (eq (len .Values.sources) 1) -}}
{{- range $name, $source := .Values.sources -}}
{{- if not (or $source.sasl ($source.tls).clientSecret) }}{{ $name }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end }}
