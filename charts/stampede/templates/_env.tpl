{{/*
Environment of a container.

stampede.env.store: the first store, with the keys for a function: (list $ "read").
stampede.env.replica: the second store.
stampede.env.settings: other settings, (list $ SETTINGS …). The first value of a setting wins.
*/}}
{{- define "stampede.env.store" -}}
{{- $ := index . 0 -}}
{{- $store := $.Values.store -}}
{{- $secret := $store.existingSecret | default (include "stampede.name" (list $ "store")) -}}
{{- if and $store.readSecret (has (index . 1) (list "read" "bulk")) }}{{ $secret = $store.readSecret }}{{ end -}}
- name: STAMPEDE_STORE
  value: {{ $store.url | quote }}
- name: STAMPEDE_REGION
  value: {{ $store.region | quote }}
{{- if ne (index . 1) "notifications" }}
- name: STAMPEDE_ACCESS_KEY
  valueFrom: {secretKeyRef: {name: {{ $secret }}, key: access-key}}
- name: STAMPEDE_SECRET_KEY
  valueFrom: {secretKeyRef: {name: {{ $secret }}, key: secret-key}}
{{- end }}
{{- if $store.caConfigMap }}
- name: STAMPEDE_CA_FILE
  value: /etc/stampede/store/ca.crt
{{- end }}
{{- end }}

{{/* The key of events: stampede.env.key */}}
{{- define "stampede.env.key" -}}
{{- if include "stampede.takesEvents" . -}}
{{- $secret := include "stampede.eventKeySecret" . -}}
- name: STAMPEDE_EVENT_KEY
  valueFrom: {secretKeyRef: {name: {{ $secret }}, key: event-key}}
- name: STAMPEDE_SECOND_EVENT_KEY
  valueFrom: {secretKeyRef: {name: {{ $secret }}, key: second-event-key, optional: true}}
{{- end }}
{{- end }}

{{- define "stampede.env.replica" -}}
{{- with .Values.replica -}}
{{- if .url -}}
{{- $secret := .existingSecret | default (include "stampede.name" (list $ "replica")) -}}
- name: STAMPEDE_REPLICA
  value: {{ .url | quote }}
- name: STAMPEDE_REPLICA_REGION
  value: {{ .region | quote }}
- name: STAMPEDE_REPLICA_ACCESS_KEY
  valueFrom: {secretKeyRef: {name: {{ $secret }}, key: access-key}}
- name: STAMPEDE_REPLICA_SECRET_KEY
  valueFrom: {secretKeyRef: {name: {{ $secret }}, key: secret-key}}
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

{{/* Kafka's settings and options of librdkafka: (list $ SOURCE). User and password are read from a Secret when the pod starts. */}}
{{- define "stampede.env.kafka" -}}
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
{{- $_ := set $options "sasl.mechanism" "$(KAFKA_MECHANISM)" }}
{{- $_ := set $options "sasl.username" "$(KAFKA_USER)" }}
{{- $_ := set $options "sasl.password" "$(KAFKA_PASSWORD)" }}
{{- range $variable, $key := dict "MECHANISM" "type" "USER" "user" "PASSWORD" "password" }}
- name: KAFKA_{{ $variable }}
  valueFrom: {secretKeyRef: {name: {{ $source.sasl.existingSecret }}, key: {{ $key }}}}
{{- end }}
{{- end }}
- name: STAMPEDE_KAFKA
  value: {{ join "," $source.bootstrapServers | quote }}
- name: STAMPEDE_TOPICS
  value: {{ join "," $source.topics | quote }}
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
  value: {{ include "stampede.groups" (list $ (index . 1) $source) }}
{{- with $source.epoch }}
- name: STAMPEDE_TOPIC_EPOCH
  value: {{ . | quote }}
{{- end }}
{{- end }}

{{/* The TLS settings of a source, or nothing if TLS is disabled. */}}
{{- define "stampede.tls" -}}
{{- if and .tls .tls.enabled }}{{ toYaml .tls }}{{ end -}}
{{- end }}

{{/* Volumes with the TLS files of a source: (list FIELD SOURCE NAME), where FIELD is `volumes` or `volumeMounts`. */}}
{{- define "stampede.files.kafka" -}}
{{- with include "stampede.tls" (index . 1) | fromYaml }}
{{- range $name, $secret := dict "kafka-ca" .caSecret "kafka-client" .clientSecret }}
{{- if $secret }}
{{- if eq (index $ 0) "volumes" }}
- name: {{ $name }}-{{ index $ 2 }}
  secret: {secretName: {{ $secret }}}
{{- else }}
- name: {{ $name }}-{{ index $ 2 }}
  mountPath: /etc/stampede/{{ $name }}
  readOnly: true
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Volumes for temporary files and the stores' certificate authorities: (list $ FIELD "store" "replica"). */}}
{{- define "stampede.files" -}}
{{- $ := index . 0 -}}
{{- $volumes := eq (index . 1) "volumes" -}}
- name: tmp
  {{ ternary "emptyDir: {sizeLimit: 64Mi}" "mountPath: /tmp" $volumes }}
{{- range $name := slice . 2 }}
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
- name: STAMPEDE_FUNCTIONS
  value: {{ toJson $urls | quote }}
{{- include "stampede.env.settings" (list $ $.Values.settings) | trim | nindent 0 }}
{{- end }}
