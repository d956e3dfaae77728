{{/* Reject single values that Kubernetes, S3 or Kafka would refuse later, or follow to something else than is meant. */}}
{{- define "stampede.check.values" -}}
{{- if not .Release.IsUpgrade -}}
{{- range $name := list "store" "replica" -}}
{{- include "stampede.check.bucket" (list $name (index $.Values $name "url")) -}}
{{- end -}}
{{- end -}}
{{- range $name, $function := .Values.functions -}}
{{- include "stampede.check.resources" (list (printf "functions.%s" $name) $function.resources) -}}
{{- $most := int64 (index $function.scaling "max-scale" | default 0) -}}
{{- $least := int64 (index $function.scaling "min-scale" | default 0) -}}
{{- if and $most (gt $least $most) -}}
{{- fail (printf "functions.%s.scaling: min-scale is %d, more than max-scale, which is %d" $name $least $most) -}}
{{- end -}}
{{- end -}}
{{- include "stampede.check.resources" (list "source" .Values.source.resources) -}}
{{- include "stampede.check.resources" (list "source.alerts" (.Values.source.alerts).resources) -}}
{{- range $name := list "setup" "doctor" "toolbox" -}}
{{- include "stampede.check.resources" (list $name (index $.Values $name | default dict).resources) -}}
{{- end -}}
{{- include "stampede.check.common" . -}}
{{- range $name, $source := .Values.sources -}}
{{- include "stampede.check.options" (list $ $name $source) -}}
{{- end -}}
{{- end }}

{{/* S3's rules for a bucket's name, which Ceph follows: (list NAME URL). A bucket that is in use may be one of
rgw_relaxed_s3_bucket_names, so an upgrade takes it. RGW names a tenant's bucket TENANT:BUCKET. */}}
{{- define "stampede.check.bucket" -}}
{{- with index . 1 -}}
{{- $bucket := regexReplaceAll "^https?://[^/]+/" . "" | trimSuffix "/" | splitList ":" | last -}}
{{- $rule := "" -}}
{{- if or (lt (len $bucket) 3) (gt (len $bucket) 63) -}}
{{- $rule = printf "it has 3 to 63 characters, not %d" (len $bucket) -}}
{{- else if not (regexMatch "^[a-z0-9.-]+$" $bucket) -}}
{{- $rule = "it has lower-case letters, digits, dots and hyphens only" -}}
{{- else if not (regexMatch "^[a-z0-9].*[a-z0-9]$" $bucket) -}}
{{- $rule = "it begins and ends with a letter or a digit" -}}
{{- else if contains ".." $bucket -}}
{{- $rule = "it has no two dots side by side" -}}
{{- else if regexMatch "^[0-9]+[.][0-9]+[.][0-9]+[.][0-9]+$" $bucket -}}
{{- $rule = "it is not written like an IP address" -}}
{{- end -}}
{{- if $rule -}}
{{- fail (printf "%s.url: S3 refuses %s as the name of a bucket: %s; a release that has such a bucket keeps it, as helm upgrade does not check this" (index $ 0) $bucket $rule) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* A store's URL as it is compared: a slash at the end, letter case of the host and the scheme's own port make no other store. */}}
{{- define "stampede.place" -}}
{{- $url := urlParse . -}}
{{- $host := lower $url.host | trimSuffix (ternary ":443" ":80" (eq (lower $url.scheme) "https")) -}}
{{- printf "%s://%s/%s" (lower $url.scheme) $host (trimAll "/" $url.path) -}}
{{- end }}

{{/* No request above its limit, which Kubernetes refuses when a pod is made: (list NAME RESOURCES). */}}
{{- define "stampede.check.resources" -}}
{{- $name := index . 0 -}}
{{- $resources := index . 1 | default dict -}}
{{- range $what, $request := $resources.requests -}}
{{- $limit := index ($resources.limits | default dict) $what -}}
{{- if not (kindIs "invalid" $limit) -}}
{{- $where := printf "%s.resources" $name -}}
{{- if gt (include "stampede.amount" (list $where $request) | float64) (include "stampede.amount" (list $where $limit) | float64) -}}
{{- fail (printf "%s: requests.%s is %v, more than limits.%s, which is %v" $where $what $request $what $limit) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* A quantity of Kubernetes, such as 500m or 2Gi, as a number: (list WHERE QUANTITY). */}}
{{- define "stampede.amount" -}}
{{- $text := include "stampede.text" (index . 1) -}}
{{- if not (regexMatch "^[0-9]+([.][0-9]*)?([munkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?$" $text) -}}
{{- fail (printf "%s: %s is no quantity: write 500m, 2 or 1.5Gi for example" (index . 0) $text) -}}
{{- end -}}
{{- $unit := regexFind "([munkMGTPE]|[KMGTPE]i)$" $text -}}
{{- $units := dict "n" 1e-9 "u" 1e-6 "m" 1e-3 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 "Pi" 1125899906842624.0 "Ei" 1152921504606846976.0 -}}
{{- mulf (float64 (trimSuffix $unit $text)) (get $units $unit | default 1.0) -}}
{{- end }}

{{/* Options of librdkafka that it has, and that do not turn off what `tls` and `sasl` turn on: (list $ NAME SOURCE). */}}
{{- define "stampede.check.options" -}}
{{- $name := index . 1 -}}
{{- $source := index . 2 -}}
{{- $options := $source.options | default dict -}}
{{- $known := (index . 0).Files.Lines "files/librdkafka.txt" -}}
{{- $login := ternary "sasl" "" (not (empty $source.sasl)) -}}
{{- range $option, $_ := $options -}}
{{- if not (has $option $known) -}}
{{- fail (printf "sources.%s.options: librdkafka has no option %s" $name $option) -}}
{{- end -}}
{{- if has $option (list "sasl.username" "sasl.password" "sasl.mechanism" "sasl.mechanisms") -}}
{{- $login = $login | default (printf "options.%s" $option) -}}
{{- end -}}
{{- end -}}
{{- $tls := ternary "tls.enabled" "" (not (empty (include "stampede.tls" $source))) -}}
{{- $protocol := index $options "security.protocol" | default (ternary (ternary "SASL_SSL" "SASL_PLAINTEXT" (ne $tls "")) (ternary "SSL" "PLAINTEXT" (ne $tls "")) (not (empty $source.sasl))) | upper -}}
{{- if not (has $protocol (list "PLAINTEXT" "SSL" "SASL_PLAINTEXT" "SASL_SSL")) -}}
{{- fail (printf "sources.%s.options: security.protocol is %s: it is PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL" $name $protocol) -}}
{{- end -}}
{{- if and $login (not (hasPrefix "SASL_" $protocol)) -}}
{{- fail (printf "sources.%s: security.protocol %s turns off the login of %s: set SASL_%s, or remove the login" $name $protocol $login $protocol) -}}
{{- end -}}
{{- if and $tls (not (hasSuffix "SSL" $protocol)) -}}
{{- fail (printf "sources.%s: options.security.protocol %s turns off %s: set %s" $name $protocol $tls (replace "PLAINTEXT" "SSL" $protocol)) -}}
{{- end -}}
{{- end }}

{{/* No label or annotation twice: YAML has no such objects. */}}
{{- define "stampede.check.common" -}}
{{- $values := .Values -}}
{{- $others := dict "commonLabels" (dict "serviceLabels" $values.serviceLabels) "commonAnnotations" (dict "serviceAnnotations" $values.serviceAnnotations) -}}
{{- range $name, $function := $values.functions -}}
{{- $_ := set $others.commonLabels (printf "functions.%s.serviceLabels" $name) $function.serviceLabels -}}
{{- $_ := set $others.commonAnnotations (printf "functions.%s.serviceAnnotations" $name) $function.serviceAnnotations -}}
{{- end -}}
{{- range $name := list "podMonitors" "rules" "dashboards" -}}
{{- $_ := set $others.commonLabels (printf "monitoring.%s.labels" $name) (index $values.monitoring $name "labels") -}}
{{- end -}}
{{- range $common, $places := $others -}}
{{- range $place, $given := $places -}}
{{- range $key, $_ := $given -}}
{{- if hasKey (index $values $common | default dict) $key -}}
{{- fail (printf "%s is in %s and in %s: remove one of them" $key $common $place) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $names := list -}}
{{- range $values.extraVolumes -}}{{- $names = append $names .name -}}{{- end -}}
{{- range $values.extraVolumeMounts -}}
{{- if not (has .name $names) -}}
{{- fail (printf "extraVolumeMounts: there is no volume %s in extraVolumes" .name) -}}
{{- end -}}
{{- end -}}
{{- end }}
