{{/* Reject values that contradict each other. values.schema.json checks single values. */}}
{{- define "stampede.check" -}}
{{- $ := . -}}
{{- $functions := include "stampede.functions" . | fromYamlArray -}}
{{- if gt (len (include "stampede.fullname" .)) 30 -}}
{{- fail (printf "the name %s is longer than 30 characters, too long for a prefix of pod names. Set fullnameOverride" (include "stampede.fullname" .)) -}}
{{- end -}}
{{- if not (or .Values.image.repository .Release.IsUpgrade) -}}
{{- fail "image.repository is not set: this chart was made for no registry. Give the image's name there, without tag, or install the chart of a release: helm install NAME oci://REGISTRY/charts/stampede. If the image is on the nodes: image.repository=dev.local/stampede" -}}
{{- end -}}
{{- if not .Values.store.url -}}
{{- fail "store.url is not set: give the S3 bucket as http(s)://HOST:PORT/BUCKET" -}}
{{- end -}}
{{- range $name := list "store" "replica" -}}
{{- with index $.Values $name -}}
{{- $inline := or .accessKey .secretKey -}}
{{- if and $inline .existingSecret -}}
{{- fail (printf "%s.existingSecret is set and keys are given as values: remove one of them" $name) -}}
{{- end -}}
{{- if and .url (not .existingSecret) (not (and .accessKey .secretKey)) -}}
{{- fail (printf "%s.url is set without keys: set %s.existingSecret, or to try the chart %s.accessKey and %s.secretKey" $name $name $name $name) -}}
{{- end -}}
{{- if and (not .url) (or $inline .existingSecret) -}}
{{- fail (printf "keys of %s are set, but %s.url is not" $name $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- include "stampede.check.values" . -}}
{{- if eq (include "stampede.place" .Values.store.url) (include "stampede.place" .Values.replica.url) -}}
{{- fail (printf "replica.url, %s, is the bucket of store.url: the second site must be another store" .Values.replica.url) -}}
{{- end -}}
{{- with .Values.eventKey -}}
{{- if and .existingSecret (or .value .second) -}}
{{- fail "eventKey.existingSecret is set and a key is given as value: remove one of them" -}}
{{- end -}}
{{- end -}}
{{- if and (ne (include "stampede.oidc" .) "disabled") (has "notifications" $functions) (not .Values.eventKey.enabled) -}}
{{- fail (printf "oidc.mode is %s, but eventKey.enabled is false: the store's notifications have no token and need the key" .Values.oidc.mode) -}}
{{- end -}}
{{- with (.Values.networkPolicy).egress -}}
{{- if and .enabled (not .rules) -}}
{{- fail "networkPolicy.egress.enabled is true without networkPolicy.egress.rules: no function could reach the store" -}}
{{- end -}}
{{- end -}}
{{- $domains := dict -}}
{{- range $name := $functions -}}
{{- $function := index $.Values.functions $name -}}
{{- with $function.domain -}}
{{- if not $function.public -}}
{{- fail (printf "functions.%s.domain is set, but functions.%s.public is false" $name $name) -}}
{{- end -}}
{{- if hasKey $domains .name -}}
{{- fail (printf "functions.%s.domain and functions.%s.domain are both %s: a domain leads to one function" (get $domains .name) $name .name) -}}
{{- end -}}
{{- $_ := set $domains .name $name -}}
{{- end -}}
{{- end -}}
{{- $topics := dict -}}
{{- range $name, $source := .Values.sources -}}
{{- range list "cutouts" "lightcurves" "deadletters" -}}
{{- if not (has . $functions) -}}
{{- fail (printf "sources.%s needs the function %s, but functions.%s.enabled is false" $name . .) -}}
{{- end -}}
{{- end -}}
{{- $read := 0 -}}
{{- range $source.topics -}}
{{- if not (hasPrefix "!" .) -}}
{{- $read = add1 $read -}}
{{- end -}}
{{- if contains "{" . -}}
{{- if eq ($source.kind | default "container") "kafka" -}}
{{- fail (printf "sources.%s: %s is a family of topics, and a KafkaSource knows names only: use kind: container" $name .) -}}
{{- end -}}
{{- if $source.autoscaling -}}
{{- fail (printf "sources.%s: %s is a family of topics, and KEDA knows names only: without one it would count the lag of all topics of this Kafka (kedacore/keda#8104). Set replicas in place of autoscaling" $name .) -}}
{{- end -}}
{{- end -}}
{{- if hasPrefix "!" . -}}
{{- else if hasKey $topics . -}}
{{- fail (printf "topic %s is in sources.%s and in sources.%s: the ledger counts by topic, so a topic may be in one source only" . (get $topics .) $name) -}}
{{- end -}}
{{- $_ := set $topics . $name -}}
{{- end -}}
{{- if not $read -}}
{{- fail (printf "sources.%s.topics names only topics that are not to be read" $name) -}}
{{- end -}}
{{- with $source.autoscaling -}}
{{- if $source.replicas -}}
{{- fail (printf "sources.%s: replicas and autoscaling are both set: remove one of them" $name) -}}
{{- end -}}
{{- if $source.staticMembership -}}
{{- fail (printf "sources.%s: staticMembership and autoscaling are both set: the partitions of each pod that is removed would stand still for Kafka's session.timeout.ms. Remove one of them" $name) -}}
{{- end -}}
{{- if lt (int .max) (int (.min | default 1)) -}}
{{- fail (printf "sources.%s.autoscaling: max is %v, less than min" $name .max) -}}
{{- end -}}
{{- if and $source.sasl (not $source.sasl.mechanism) (ne ($source.kind | default "container") "kafka") -}}
{{- fail (printf "sources.%s.autoscaling needs sasl.mechanism, the type in the Secret %s: KEDA has other names for it" $name $source.sasl.existingSecret) -}}
{{- end -}}
{{- end -}}
{{- with $source.sasl -}}
{{- if and .user (not .mechanism) -}}
{{- fail (printf "sources.%s: sasl.user needs sasl.mechanism, since the Secret %s gives the password only" $name .existingSecret) -}}
{{- end -}}
{{- if and .user (or $source.autoscaling (eq ($source.kind | default "container") "kafka")) -}}
{{- fail (printf "sources.%s: a KafkaSource, and KEDA, read the user from the Secret: put it into %s, and name its key in sasl.secretKeys.user, in place of sasl.user" $name .existingSecret) -}}
{{- end -}}
{{- end -}}
{{- $longest := printf "%s-%s-lightcurves" (include "stampede.fullname" $) $name -}}
{{- if and $source.staticMembership (gt (len $longest) 52) -}}
{{- fail (printf "sources.%s: the name %s is longer than 52 characters, too long for a StatefulSet. Set a shorter fullnameOverride" $name $longest) -}}
{{- end -}}
{{- if eq ($source.kind | default "container") "kafka" -}}
{{- range $field := list "staticMembership" "functionInPod" "options" "settings" -}}
{{- if index $source $field -}}
{{- fail (printf "sources.%s: %s is for kind: container only, not for a KafkaSource" $name $field) -}}
{{- end -}}
{{- end -}}
{{- if not $source.epoch -}}
{{- fail (printf "sources.%s: kind: kafka needs an epoch, any text, and another one whenever its topics are made anew: a KafkaSource does not know Kafka's id of a topic, so the offsets of the new topic would be taken for those of the old one" $name) -}}
{{- end -}}
{{- else if $source.epoch -}}
{{- fail (printf "sources.%s: epoch applies to kind: kafka only; a source of kind container asks Kafka for the ids of its topics" $name) -}}
{{- end -}}
{{- end -}}
{{- if not (or .Values.broker.create .Values.broker.name) -}}
{{- fail "broker.create is false, so broker.name must name an existing Broker" -}}
{{- end -}}
{{- range $name := list "cutouts" "lightcurves" -}}
{{- $function := index $.Values.functions $name -}}
{{- $flush := $function.settings.flush_seconds | default $.Values.settings.flush_seconds | default 120 -}}
{{- if le (float64 $function.timeoutSeconds) (float64 $flush) -}}
{{- fail (printf "functions.%s.timeoutSeconds is %v: Knative would abort requests during a flush, which may take %v s" $name $function.timeoutSeconds $flush) -}}
{{- end -}}
{{- end -}}
{{- $scrub := .Values.functions.scrub -}}
{{- $seconds := $scrub.settings.scrub_seconds | default .Values.settings.scrub_seconds | default 120 -}}
{{- if lt (float64 $scrub.timeoutSeconds) (mulf 3 (float64 $seconds)) -}}
{{- fail (printf "functions.scrub.timeoutSeconds is %v: Knative would abort passes, which read for %v s, twice as long in a round that is late, and then check references" $scrub.timeoutSeconds $seconds) -}}
{{- end -}}
{{- $reconcile := .Values.functions.reconcile -}}
{{- $seconds := $reconcile.settings.reconcile_seconds | default .Values.settings.reconcile_seconds | default 300 -}}
{{- if lt (float64 $reconcile.timeoutSeconds) (mulf 2 (float64 $seconds)) -}}
{{- fail (printf "functions.reconcile.timeoutSeconds is %v: Knative would abort passes, which list and copy for %v s and then do the rest" $reconcile.timeoutSeconds $seconds) -}}
{{- end -}}
{{- $publish := .Values.functions.publish -}}
{{- if and $publish.enabled (not ($publish.settings.catalogue | default .Values.settings.catalogue)) -}}
{{- fail "functions.publish is enabled, so functions.publish.settings.catalogue must be the URL of a bucket for the catalogue" -}}
{{- end -}}
{{- with .Values.ledger.source -}}
{{- if not (or (eq . "none") (hasKey $.Values.sources .)) -}}
{{- fail (printf "ledger.source is %s, but there is no sources.%s" . .) -}}
{{- end -}}
{{- end -}}
{{- end }}
