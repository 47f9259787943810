{{- /*
What a pod needs to have a proxy in it. The Deployment is made of these parts, and
so is a pod of a chart that has this one as a dependency in mode sidecar:

  metadata: {labels: {{ include "fenceproxy.pods" $proxy }}}
  spec:
    initContainers: [{{ include "fenceproxy.sidecar" $proxy }}]
    volumes: {{ include "fenceproxy.volumes" $proxy }}
    terminationGracePeriodSeconds: {{ include "fenceproxy.grace" $proxy }}

where $proxy is .Subcharts.fenceproxy. Its application connects to 127.0.0.1:6433.
*/ -}}
{{- define "fenceproxy.container" -}}
name: fenceproxy
image: {{ include "fenceproxy.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args: [serve, --config, /etc/fenceproxy/fenceproxy.yaml]
env:
  - name: FENCEPROXY_UPSTREAM
    valueFrom:
      secretKeyRef:
        name: {{ .Values.upstream.secretName | quote }}
        key: {{ .Values.upstream.secretKey | quote }}
  - name: FENCEPROXY_ADMIN_TOKEN
    valueFrom:
      secretKeyRef:
        name: {{ include "fenceproxy.adminSecret" . | quote }}
        key: {{ .Values.adminToken.secretKey | quote }}
  {{- with .Values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
ports:
  {{- if ne .Values.mode "sidecar" }}
  - {name: postgres, containerPort: 6433}
  {{- end }}
  - {name: fence-admin, containerPort: 6434}
# Until PostgreSQL and etcd answered once the proxy has no ports; after that only
# a process that hangs is started anew.
startupProbe:
  httpGet: {path: /healthz, port: fence-admin}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /healthz, port: fence-admin}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
{{- /* An application is not to be taken out of its own Service when etcd is away. */}}
{{- if ne .Values.mode "sidecar" }}
readinessProbe:
  httpGet: {path: {{ ternary "/readyz" "/readyz?exclude=etcd" .Values.readiness.etcd | quote }}, port: fence-admin}
  periodSeconds: 5
  timeoutSeconds: 2
  failureThreshold: 2
lifecycle:
  # New sessions are refused as soon as the proxy drains, so it must be out of
  # the Service's endpoints before.
  preStop:
    sleep: {seconds: {{ int .Values.preStopSeconds }}}
{{- end }}
resources:
  {{- toYaml .Values.resources | nindent 2 }}
securityContext:
  {{- include "fenceproxy.confined" . | nindent 2 }}
volumeMounts:
  - {name: fenceproxy, mountPath: /etc/fenceproxy, readOnly: true}
  {{- if and .Values.tls.secretName (ne .Values.mode "sidecar") }}
  - {name: fenceproxy-tls, mountPath: /etc/fenceproxy-tls, readOnly: true}
  {{- end }}
{{- end -}}

{{- /* A container that is a sidecar starts before the application and ends behind it. */ -}}
{{- define "fenceproxy.sidecar" -}}
{{ include "fenceproxy.container" . }}
restartPolicy: Always
{{- end -}}

{{- define "fenceproxy.volumes" -}}
- name: fenceproxy
  configMap: {name: {{ include "fenceproxy.name" . | quote }}}
{{- if and .Values.tls.secretName (ne .Values.mode "sidecar") }}
- name: fenceproxy-tls
  secret: {secretName: {{ .Values.tls.secretName | quote }}, defaultMode: 0440}
{{- end }}
{{- end -}}

{{- /* What the Pod Security Standard "restricted" asks of a container, and a file system that can't be written. */ -}}
{{- define "fenceproxy.confined" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- /* preStop, draining, and ten seconds to cut off what is left. */ -}}
{{- define "fenceproxy.grace" -}}
{{- add (int .Values.preStopSeconds) (int .Values.drainTimeoutSeconds) 10 -}}
{{- end -}}
