{{/* Values that contradict each other. What one value alone may be, values.schema.json says. */}}
{{- define "stampede.check" -}}
{{- $ := . -}}
{{- $functions := include "stampede.functions" . | fromYamlArray -}}
{{- if gt (len (include "stampede.fullname" .)) 30 -}}
{{- fail (printf "the name %s is longer than 30 characters: names of pods are made of it. Set fullnameOverride" (include "stampede.fullname" .)) -}}
{{- end -}}
{{- if not .Values.store.url -}}
{{- fail "store.url is not set: say where everything is kept, http(s)://HOST:PORT/BUCKET" -}}
{{- end -}}
{{- range $name := list "store" "replica" -}}
{{- with index $.Values $name -}}
{{- $inline := or .accessKey .secretKey -}}
{{- if and $inline .existingSecret -}}
{{- fail (printf "%s.existingSecret and keys given as values: which of them? Leave one out" $name) -}}
{{- end -}}
{{- if and .url (not .existingSecret) (not (and .accessKey .secretKey)) -}}
{{- fail (printf "%s.url without its keys: set %s.existingSecret, or for a try %s.accessKey and %s.secretKey" $name $name $name $name) -}}
{{- end -}}
{{- if and (not .url) (or $inline .existingSecret) -}}
{{- fail (printf "keys of %s, but no %s.url" $name $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if eq .Values.store.url .Values.replica.url -}}
{{- fail "replica.url is store.url: a second site is another store" -}}
{{- end -}}
{{- $topics := dict -}}
{{- range $name, $source := .Values.sources -}}
{{- range list "cutouts" "lightcurves" "deadletters" -}}
{{- if not (has . $functions) -}}
{{- fail (printf "sources.%s needs the function %s, and functions.%s.enabled is false" $name . .) -}}
{{- end -}}
{{- end -}}
{{- range $source.topics -}}
{{- if hasKey $topics . -}}
{{- fail (printf "topic %s is in sources.%s and in sources.%s: the ledger counts by topic, so each may come from one Kafka only" . (get $topics .) $name) -}}
{{- end -}}
{{- $_ := set $topics . $name -}}
{{- end -}}
{{- if eq ($source.kind | default "container") "kafka" -}}
{{- if or $source.options $source.settings -}}
{{- fail (printf "sources.%s: options and settings are for kind: container; a KafkaSource takes none" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if not (or .Values.broker.create .Values.broker.name) -}}
{{- fail "broker.create is false, so broker.name must say which Broker there is" -}}
{{- end -}}
{{- range $name := list "cutouts" "lightcurves" -}}
{{- $function := index $.Values.functions $name -}}
{{- $flush := $function.settings.flush_seconds | default $.Values.settings.flush_seconds | default 120 -}}
{{- if le (float64 $function.timeoutSeconds) (float64 $flush) -}}
{{- fail (printf "functions.%s.timeoutSeconds is %v: Knative would cut off what a flush of up to %v s is still storing" $name $function.timeoutSeconds $flush) -}}
{{- end -}}
{{- end -}}
{{- end }}
