{{/*
Environment of a container.

stampede.env.store: the first store, for a function: (list $ "read").
stampede.env.replica: the second store.
stampede.env.settings: other settings, (list $ SETTINGS …). The first value of a setting wins.
*/}}
{{- define "stampede.env.store" -}}
{{- $ := index . 0 -}}
{{- $store := $.Values.store -}}
- name: STAMPEDE_STORE
  value: {{ $store.url | quote }}
- name: STAMPEDE_REGION
  value: {{ $store.region | quote }}
{{- if include "stampede.secretOf" (list $ (index . 1) "store") }}
- name: STAMPEDE_KEYS
  value: /etc/stampede/store-keys
{{- end }}
{{- if $store.caConfigMap }}
- name: STAMPEDE_CA_FILE
  value: /etc/stampede/store/ca.crt
{{- end }}
{{- include "stampede.env.registry" . }}
{{- end }}

{{/* Login and authority of the schema registry, for those that decode alerts: (list $ "read"); and their volumes, (list $ "read" FIELD). */}}
{{- define "stampede.env.registry" -}}
{{- if not (has (index . 1) (list "notifications" "replicate" "setup" "remove")) }}
{{- with (index . 0).Values.schemaRegistry }}
{{- if .existingSecret }}
- name: STAMPEDE_SCHEMA_REGISTRY_KEYS
  value: /etc/stampede/registry-keys
{{- end }}
{{- if .caConfigMap }}
- name: STAMPEDE_SCHEMA_REGISTRY_CA
  value: /etc/stampede/registry/ca.crt
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- define "stampede.files.registry" -}}
{{- $volumes := eq (index . 2) "volumes" -}}
{{- if not (has (index . 1) (list "notifications" "replicate" "setup" "remove")) }}
{{- with (index . 0).Values.schemaRegistry }}
{{- with .existingSecret }}
- name: registry-keys
  {{ ternary (printf "secret: {secretName: %s}" .) "mountPath: /etc/stampede/registry-keys" $volumes }}
  {{- if not $volumes }}
  readOnly: true
  {{- end }}
{{- end }}
{{- with .caConfigMap }}
- name: registry-ca
  {{ ternary (printf "configMap: {name: %s}" .) "mountPath: /etc/stampede/registry" $volumes }}
  {{- if not $volumes }}
  readOnly: true
  {{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/*
What proves senders to functions.

stampede.env.key: the key of events.
stampede.env.senders: whose tokens a function accepts.
stampede.env.token: the token of a pod that sends events.
stampede.files.senders, stampede.files.token: their volumes, (list $ FIELD), where FIELD is `volumes` or `volumeMounts`.
*/}}
{{- define "stampede.env.key" -}}
{{- if include "stampede.hasEventKey" . -}}
{{- $secret := include "stampede.eventKeySecret" . -}}
- name: STAMPEDE_EVENT_KEY
  valueFrom: {secretKeyRef: {name: {{ $secret }}, key: {{ include "stampede.eventKeyName" (list . "key") | quote }}}}
- name: STAMPEDE_SECOND_EVENT_KEY
  valueFrom: {secretKeyRef: {name: {{ $secret }}, key: {{ include "stampede.eventKeyName" (list . "second") | quote }}, optional: true}}
{{- end }}
{{- end }}

{{- define "stampede.env.senders" -}}
{{- if ne (include "stampede.oidc" .) "disabled" -}}
{{- $account := printf "system:serviceaccount:%s" .Release.Namespace -}}
{{- $subjects := list (printf "%s:%s" $account (include "stampede.serviceAccount" .)) (printf "%s:%s-*" $account (include "stampede.fullname" .)) -}}
- name: STAMPEDE_SENDER_ISSUER
  value: {{ .Values.oidc.issuer | quote }}
- name: STAMPEDE_SENDER_AUDIENCE
  value: {{ include "stampede.audience" . | quote }}
- name: STAMPEDE_SENDER_SUBJECTS
  value: {{ concat $subjects .Values.oidc.subjects | join "," | quote }}
{{- if .Values.oidc.caConfigMap }}
- name: STAMPEDE_SENDER_ISSUER_CA
  value: /etc/stampede/issuer/ca.crt
{{- end }}
{{- if include "stampede.issuerToken" . }}
- name: STAMPEDE_SENDER_ISSUER_TOKEN
  value: /etc/stampede/issuer/token
{{- end }}
{{ include "stampede.env.tokensOnly" . }}
{{- end }}
{{- end }}

{{- define "stampede.env.tokensOnly" -}}
{{- if eq (include "stampede.oidc" .) "required" -}}
- name: STAMPEDE_SENDER_TOKENS_ONLY
  value: "true"
{{- end }}
{{- end }}

{{- define "stampede.env.token" -}}
{{- if ne (include "stampede.oidc" .) "disabled" -}}
- name: STAMPEDE_SENDER_TOKEN
  value: /etc/stampede/sender/token
{{- end }}
{{- end }}

{{- define "stampede.files.senders" -}}
{{- with index . 0 -}}
{{- $token := include "stampede.issuerToken" . -}}
{{- if and (ne (include "stampede.oidc" .) "disabled") (or $token .Values.oidc.caConfigMap) -}}
- name: issuer
{{- if eq (index $ 1) "volumeMounts" }}
  mountPath: /etc/stampede/issuer
  readOnly: true
{{- else }}
  projected:
    sources:
      {{- with .Values.oidc.caConfigMap }}
      - configMap: {name: {{ . }}, items: [{key: ca.crt, path: ca.crt}]}
      {{- end }}
      {{- if $token }}
      # The API server tells its keys to pods only.
      - serviceAccountToken: {path: token, expirationSeconds: 3600}
      {{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "stampede.files.token" -}}
{{- with index . 0 -}}
{{- if ne (include "stampede.oidc" .) "disabled" -}}
- name: sender
{{- if eq (index $ 1) "volumeMounts" }}
  mountPath: /etc/stampede/sender
  readOnly: true
{{- else }}
  projected:
    sources:
      - serviceAccountToken: {path: token, audience: {{ include "stampede.audience" . | quote }}, expirationSeconds: 3600}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "stampede.env.replica" -}}
{{- with .Values.replica -}}
{{- if .url -}}
- name: STAMPEDE_REPLICA
  value: {{ .url | quote }}
- name: STAMPEDE_REPLICA_REGION
  value: {{ .region | quote }}
- name: STAMPEDE_REPLICA_KEYS
  value: /etc/stampede/replica-keys
{{- if .caConfigMap }}
- name: STAMPEDE_REPLICA_CA_FILE
  value: /etc/stampede/replica/ca.crt
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "stampede.env.settings" -}}
{{- $settings := dict -}}
{{- range reverse (rest .) }}{{- range $name, $value := . }}{{ $_ := set $settings $name $value }}{{ end }}{{- end -}}
{{- range $name, $value := $settings }}
- name: STAMPEDE_{{ upper $name }}
  value: {{ include "stampede.text" $value | quote }}
{{- end }}
{{- end }}

{{/* Kafka's settings and options of librdkafka: (list $ SOURCE). */}}
{{- define "stampede.env.kafka" -}}
{{- $root := index . 0 -}}
{{- $source := index . 1 -}}
{{- $options := dict -}}
{{- $tls := include "stampede.tls" $source | fromYaml -}}
{{- with $tls }}
{{- $_ := set $options "security.protocol" "SSL" }}
{{- with .caSecret }}{{ $_ := set $options "ssl.ca.location" "/etc/stampede/kafka-ca/ca.crt" }}{{ end }}
{{- with .clientSecret }}
{{- $_ := set $options "ssl.certificate.location" "/etc/stampede/kafka-client/tls.crt" }}
{{- $_ := set $options "ssl.key.location" "/etc/stampede/kafka-client/tls.key" }}
{{- end }}
{{- end }}
{{- with $source.sasl }}
{{- $_ := set $options "security.protocol" (ternary "SASL_SSL" "SASL_PLAINTEXT" (not (empty $tls))) }}
{{- if .user }}
{{- $_ := set $options "sasl.username" .user }}
{{- $_ := set $options "sasl.mechanism" .mechanism }}
{{- end }}
- name: STAMPEDE_KAFKA_KEYS
  value: /etc/stampede/kafka-keys
{{- end }}
- name: STAMPEDE_KAFKA
  value: {{ join "," $source.bootstrapServers | quote }}
- name: STAMPEDE_TOPICS
  value: {{ join "," $source.topics | quote }}
{{- $others := list }}
{{- range $root.Values.sources }}
{{- range .topics }}
{{- if not (or (hasPrefix "!" .) (has . $source.topics)) }}{{ $others = append $others . }}{{ end }}
{{- end }}
{{- end }}
{{- with $others }}
- name: STAMPEDE_OTHER_TOPICS
  value: {{ join "," . | quote }}
{{- end }}
{{- range $name, $value := $source.options }}{{ $_ := set $options $name (include "stampede.text" $value) }}{{ end }}
{{- with $options }}
- name: STAMPEDE_KAFKA_OPTIONS
  value: {{ toJson . | quote }}
{{- end }}
{{- end }}

{{/* Settings with which `read` asks Kafka what a source is still to deliver: (list $ NAME SOURCE). */}}
{{- define "stampede.env.ledger" -}}
{{- $ := index . 0 -}}
{{- $source := index . 2 -}}
{{- include "stampede.env.kafka" (list $ $source) }}
- name: STAMPEDE_GROUP
  value: {{ include "stampede.group" (list $ (index . 1) $source) }}
{{- with $source.epoch }}
- name: STAMPEDE_TOPIC_EPOCH
  value: {{ . | quote }}
{{- end }}
{{- end }}

{{/*
How many pods a source shall have, for `stampede doctor`: not elsewhere, since a change replaces the pods that have it. With the usual
number there may be fewer partitions.
*/}}
{{- define "stampede.env.doctor" -}}
- name: STAMPEDE_SOURCE_REPLICAS
  value: {{ .replicas | default ((.autoscaling).min) | default 1 | quote }}
{{- end }}

{{/* The TLS settings of a source, or nothing if TLS is disabled. */}}
{{- define "stampede.tls" -}}
{{- if and .tls .tls.enabled }}{{ toYaml .tls }}{{ end -}}
{{- end }}

{{/*
Volumes with a source's TLS files, user and password: (list FIELD SOURCE NAME), where FIELD is `volumes` or `volumeMounts`.

stampede.kafkaNames: the names of their keys in the Secrets, by file, for a source.
*/}}
{{- define "stampede.files.kafka" -}}
{{- $tls := include "stampede.tls" (index . 1) | fromYaml }}
{{- $sasl := (index . 1).sasl | default dict }}
{{- $names := include "stampede.kafkaNames" (index . 1) | fromYaml }}
{{- $files := dict "kafka-ca" (list "ca.crt") "kafka-client" (list "tls.crt" "tls.key") "kafka-keys" (ternary (list "password") (list "user" "password" "type") (not (empty $sasl.user))) }}
{{- range $name, $secret := dict "kafka-ca" $tls.caSecret "kafka-client" $tls.clientSecret "kafka-keys" $sasl.existingSecret }}
{{- if $secret }}
{{- if eq (index $ 0) "volumes" }}
- name: {{ $name }}-{{ index $ 2 }}
  secret: {secretName: {{ $secret }}{{ if or $tls.secretKeys (eq $name "kafka-keys") }}, {{ include "stampede.items" (list (get $files $name) $names) }}{{ end }}}
{{- else }}
- name: {{ $name }}-{{ index $ 2 }}
  mountPath: /etc/stampede/{{ $name }}
  readOnly: true
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- define "stampede.kafkaNames" -}}
{{- $tls := (.tls | default dict).secretKeys | default dict -}}
{{- $sasl := (.sasl | default dict).secretKeys | default dict -}}
ca.crt: {{ $tls.ca | default "ca.crt" | quote }}
tls.crt: {{ $tls.certificate | default "tls.crt" | quote }}
tls.key: {{ $tls.key | default "tls.key" | quote }}
user: {{ $sasl.user | default "user" | quote }}
password: {{ $sasl.password | default "password" | quote }}
type: {{ $sasl.type | default "type" | quote }}
{{- end }}

{{/*
stampede.files.kubernetes: the pod's token for Kubernetes' API, where `stampede doctor` reads what Knative is like: (list $ FIELD).
stampede.files.account: the same for a pod that has it in any case.
*/}}
{{- define "stampede.files.kubernetes" -}}
{{- if ((index . 0).Values.doctor).knative }}{{ include "stampede.files.account" . }}{{ end -}}
{{- end }}
{{- define "stampede.files.account" -}}
- name: kubernetes
{{- if eq (index . 1) "volumeMounts" }}
  mountPath: /var/run/secrets/kubernetes.io/serviceaccount
  readOnly: true
{{- else }}
  projected:
    sources:
      - serviceAccountToken: {path: token, expirationSeconds: 3600}
      - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
      - downwardAPI: {items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]}
{{- end }}
{{- end }}

{{/*
Volumes for temporary files, and the stores' keys and certificate authorities: (list $ "read" FIELD "store" "replica"). Kubernetes
puts changed keys into a pod's files, not into its environment.

stampede.secretOf: the Secret with the keys of a store for a function, (list $ "read" "store"); nothing if it has none.
stampede.items: that a pod has only these keys of a Secret, and does not start without one: (list FILES NAMES), where NAMES are those
in the Secret that differ, by file.
*/}}
{{- define "stampede.secretOf" -}}
{{- $ := index . 0 -}}
{{- $site := index $.Values (index . 2) -}}
{{- if and $site.url (ne (index . 1) "notifications") -}}
{{- $reads := and (has (index . 1) (list "read" "bulk")) $site.readSecret -}}
{{- get ($site.secrets | default dict) (index . 1) | default $reads | default $site.existingSecret | default (include "stampede.name" (list $ (index . 2))) -}}
{{- end -}}
{{- end }}
{{- define "stampede.items" -}}
{{- $names := index . 1 | default dict -}}
items: [{{ range $index, $path := index . 0 }}{{ if $index }}, {{ end }}{key: {{ get $names $path | default $path | quote }}, path: {{ $path }}}{{ end }}]
{{- end }}

{{/* What a Secret of a store calls its keys, by the files that pods read: (list $ "store" SECRET). The chart's own Secret has these names. */}}
{{- define "stampede.namesOf" -}}
{{- if ne (index . 2) (include "stampede.name" (list (index . 0) (index . 1))) -}}
{{- with (index (index . 0).Values (index . 1)).secretKeys -}}
{{- dict "access-key" .accessKey "secret-key" .secretKey | toYaml -}}
{{- end -}}
{{- end -}}
{{- end }}
{{- define "stampede.files" -}}
{{- $ := index . 0 -}}
{{- $function := index . 1 -}}
{{- $volumes := eq (index . 2) "volumes" -}}
- name: tmp
  {{ ternary "emptyDir: {sizeLimit: 64Mi}" "mountPath: /tmp" $volumes }}
{{- range $name := slice . 3 }}
{{- with include "stampede.secretOf" (list $ $function $name) }}
- name: {{ $name }}-keys
{{- if $volumes }}
  secret: {secretName: {{ . }}, {{ include "stampede.items" (list (list "access-key" "secret-key") (include "stampede.namesOf" (list $ $name .) | fromYaml)) }}}
{{- else }}
  mountPath: /etc/stampede/{{ $name }}-keys
  readOnly: true
{{- end }}
{{- end }}
{{- with (index $.Values $name).caConfigMap }}
{{- if $volumes }}
- name: {{ $name }}-ca
  configMap: {name: {{ . }}}
{{- else }}
- name: {{ $name }}-ca
  mountPath: /etc/stampede/{{ $name }}
  readOnly: true
{{- end }}
{{- end }}
{{- end }}
{{- include "stampede.files.registry" . }}
{{- end }}

{{/* All settings for the command line in the toolbox, with one source: (list $ NAME SOURCE). */}}
{{- define "stampede.env.tools" -}}
{{- $ := index . 0 -}}
{{- $source := index . 2 -}}
{{- include "stampede.env.store" (list $ "toolbox") }}
{{- include "stampede.env.replica" $ | trim | nindent 0 }}
{{- if $source }}
{{- include "stampede.env.ledger" . | nindent 0 }}
{{- end }}
{{- $urls := dict -}}
{{- range include "stampede.functions" $ | fromYamlArray }}{{ $_ := set $urls . (include "stampede.url" (list $ .)) }}{{ end }}
{{- include "stampede.env.key" $ | nindent 0 }}
- name: STAMPEDE_INSTALLATION
  value: {{ include "stampede.installation" $ | quote }}
- name: STAMPEDE_FUNCTIONS
  value: {{ toJson $urls | quote }}
{{- include "stampede.env.settings" (list $ $.Values.settings) | trim | nindent 0 }}
{{- include "stampede.extraEnv" $ | nindent 0 }}
{{- end }}
