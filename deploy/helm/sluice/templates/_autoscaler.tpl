{{/* The autoscaler's files, of a dict with root, name and fullname. */}}
{{- define "sluice.autoscalerConfigMap" }}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .fullname }}-files
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "sluice.labels" . | nindent 4 }}
data:
  {{- range $name, $text := .root.Values.autoscaler.files }}
  {{ $name }}: {{- toYaml $text | nindent 4 }}
  {{- end }}
{{- end }}

{{/* The spec of the autoscaler's pod, of a dict with root, name, fullname, values and volume, whether it has one. Its token for the API server is mounted only if it scales on Kubernetes. */}}
{{- define "sluice.autoscalerPod" -}}
{{- $a := .values }}
{{- $root := .root }}
serviceAccountName: {{ $a.serviceAccountName | default .fullname }}
automountServiceAccountToken: {{ gt (len (fromJsonArray (include "sluice.targets" $root))) 0 }}
enableServiceLinks: false
{{- /* At most 15 seconds to release the lease, 2 minutes to close the target, 5 seconds for the last metrics. */}}
terminationGracePeriodSeconds: 150
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{ include "sluice.podSecurity" . }}
containers:
  - name: sluice
    image: {{ include "sluice.image" $root }}
    imagePullPolicy: {{ $root.Values.image.pullPolicy }}
    workingDir: /var/lib/sluice
    args:
      - autoscale
      - run
      {{- range $name, $text := $a.files }}
      - /etc/sluice-autoscaler/{{ $name }}
      {{- end }}
      {{- if $a.dryRun }}
      - --dry-run
      {{- end }}
      - --metrics=:9090
      - --log-format={{ $root.Values.log.format }}
      - --log-level={{ $root.Values.log.level }}
      {{- range $a.args }}
      - {{ . | quote }}
      {{- end }}
    ports:
      - {name: metrics, containerPort: 9090}
    env:
      {{- with dig "limits" "memory" "" $a.resources }}
      - {name: GOMEMLIMIT, value: {{ include "sluice.memoryLimit" . }}}
      {{- end }}
      {{- with $a.env }}{{ toYaml . | nindent 6 }}{{ end }}
    {{- with $a.envFrom }}
    envFrom: {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- include "sluice.probes" $a.probes | nindent 4 }}
    {{- with $a.resources }}
    resources: {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- include "sluice.containerSecurity" . | nindent 4 }}
    volumeMounts:
      - {name: config, mountPath: /etc/sluice-autoscaler, readOnly: true}
      - {name: pipelines, mountPath: /etc/sluice, readOnly: true}
      - {name: data, mountPath: /var/lib/sluice}
      {{- with $a.volumeMounts }}{{ toYaml . | nindent 6 }}{{ end }}
volumes:
  - name: config
    configMap: {name: {{ .fullname }}-files}
  {{- include "sluice.pipelineFiles" $root | nindent 2 }}
  - name: data
    {{- if .volume }}
    persistentVolumeClaim: {claimName: {{ $a.state.existingClaim | default .fullname }}}
    {{- else }}
    emptyDir: {}
    {{- end }}
  {{- with $a.volumes }}{{ toYaml . | nindent 2 }}{{ end }}
{{- include "sluice.spread" . }}
{{- with include "sluice.scheduling" $a }}{{ . }}{{ end }}
{{- end }}
