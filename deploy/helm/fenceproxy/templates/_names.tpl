{{- define "fenceproxy.name" -}}
{{- if contains "fenceproxy" .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-fenceproxy" .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "fenceproxy.selector" -}}
app.kubernetes.io/name: fenceproxy
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "fenceproxy.labels" -}}
{{ include "fenceproxy.selector" . }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- /* Which pods have a proxy in them: the chart's own, or those that carry it as a sidecar. */ -}}
{{- define "fenceproxy.pods" -}}
{{- if eq .Values.mode "sidecar" -}}
fenceproxy/sidecar: {{ .Release.Name | quote }}
{{- else -}}
{{ include "fenceproxy.selector" . }}
{{- end -}}
{{- end -}}

{{- /* The pod of the Job: not one of the selector's, which a Service would send clients to. */ -}}
{{- define "fenceproxy.initPod" -}}
app.kubernetes.io/component: init
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "fenceproxy.adminSecret" -}}
{{- .Values.adminToken.secretName | default (printf "%s-admin" (include "fenceproxy.name" .)) -}}
{{- end -}}

{{- define "fenceproxy.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- /* The file of settings: the user's, and what goes with the chart's own values. */ -}}
{{- define "fenceproxy.settings" -}}
{{- $settings := deepCopy .Values.settings -}}
{{- $_ := set $settings "drain_timeout" (printf "%ds" (int .Values.drainTimeoutSeconds)) -}}
{{- $_ := set $settings "admin_listen" "0.0.0.0:6434" -}}
{{- if eq .Values.mode "sidecar" -}}
{{- $_ := set $settings "listen" "127.0.0.1:6433" -}}
{{- else -}}
{{- $_ := set $settings "listen" "0.0.0.0:6433" -}}
{{- $_ := set $settings "cancel_peers" (printf "%s-peers:6433" (include "fenceproxy.name" .)) -}}
{{- if .Values.tls.secretName -}}
{{- $_ := set $settings "client_tls" .Values.tls.mode -}}
{{- $_ := set $settings "client_tls_cert" "/etc/fenceproxy-tls/tls.crt" -}}
{{- $_ := set $settings "client_tls_key" "/etc/fenceproxy-tls/tls.key" -}}
{{- else if .Values.tls.insecureListen -}}
{{- $_ := set $settings "insecure_listen" true -}}
{{- else -}}
{{- fail "tls.secretName is empty, so what clients send, passwords too, would not be encrypted: name a Secret of type kubernetes.io/tls, or set tls.insecureListen=true if that is meant" -}}
{{- end -}}
{{- end -}}
{{ toYaml $settings }}
{{- end -}}
