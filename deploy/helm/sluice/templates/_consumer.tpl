{{/* The pipeline's file and those that it needs, of a dict with root and p. */}}
{{- define "sluice.configMap" }}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .p.fullname }}-files
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "sluice.labels" (dict "root" .root "name" .p.name) | nindent 4 }}
data:
  {{ .p.name }}.yaml: {{- toYaml .p.file | nindent 4 }}
  {{- range $name, $text := .p.files }}
  {{ $name }}: {{- toYaml $text | nindent 4 }}
  {{- end }}
{{- end }}

{{/* The spec of a consumer's pods, of a dict with root and p. */}}
{{- define "sluice.consumerPod" -}}
{{- $p := .p }}
serviceAccountName: {{ $p.serviceAccountName | default $p.fullname }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- /* The process exits 9 seconds after the time-out at the latest. */}}
terminationGracePeriodSeconds: {{ add $p.stopTimeoutSeconds 15 }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{ include "sluice.podSecurity" . }}
containers:
  - name: sluice
    image: {{ include "sluice.image" .root }}
    imagePullPolicy: {{ .root.Values.image.pullPolicy }}
    workingDir: /var/lib/sluice
    args:
      - run
      - /etc/sluice/{{ $p.name }}.yaml
      {{- with $p.stage }}
      - --stage={{ . }}
      {{- end }}
      - --metrics=:9090
      - --stop-timeout={{ $p.stopTimeoutSeconds }}s
      - --log-format={{ .root.Values.log.format }}
      - --log-level={{ .root.Values.log.level }}
      {{- if $p.dashboard.enabled }}
      - --web=:8443
      - --web-token-env=SLUICE_WEB_TOKEN
      {{- if $p.dashboard.tlsSecret }}
      - --web-cert=/etc/sluice-tls/tls.crt
      - --web-key=/etc/sluice-tls/tls.key
      {{- end }}
      {{- end }}
      {{- range $p.args }}
      - {{ . | quote }}
      {{- end }}
    ports:
      - {name: metrics, containerPort: 9090}
      {{- if $p.dashboard.enabled }}
      - {name: dashboard, containerPort: 8443}
      {{- end }}
    env:
      {{- with dig "limits" "memory" "" $p.resources }}
      - {name: GOMEMLIMIT, value: {{ include "sluice.memoryLimit" . }}}
      {{- end }}
      {{- if $p.dashboard.enabled }}
      - {name: SLUICE_WEB_TOKEN, valueFrom: {secretKeyRef: {name: {{ $p.dashboard.tokenSecret.name }}, key: {{ $p.dashboard.tokenSecret.key | default "token" }}}}}
      {{- end }}
      {{- if $p.keyVault.name }}
      {{- range $variable, $secret := $p.keyVault.secrets }}
      - {name: {{ $variable }}, valueFrom: {secretKeyRef: {name: {{ $p.keyVaultSecret }}, key: {{ $variable }}}}}
      {{- end }}
      {{- end }}
      {{- with $p.env }}{{ toYaml . | nindent 6 }}{{ end }}
    {{- with $p.envFrom }}
    envFrom: {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- include "sluice.probes" $p.probes | nindent 4 }}
    {{- with $p.resources }}
    resources: {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- include "sluice.containerSecurity" . | nindent 4 }}
    volumeMounts:
      - {name: config, mountPath: /etc/sluice, readOnly: true}
      - {name: data, mountPath: /var/lib/sluice}
      {{- if and $p.dashboard.enabled $p.dashboard.tlsSecret }}
      - {name: tls, mountPath: /etc/sluice-tls, readOnly: true}
      {{- end }}
      {{- if $p.keyVault.name }}
      - {name: key-vault, mountPath: /mnt/key-vault, readOnly: true}
      {{- end }}
      {{- with $p.volumeMounts }}{{ toYaml . | nindent 6 }}{{ end }}
volumes:
  - name: config
    configMap: {name: {{ $p.fullname }}-files}
  - name: data
    emptyDir: {sizeLimit: {{ $p.dataSize }}}
  {{- if and $p.dashboard.enabled $p.dashboard.tlsSecret }}
  - name: tls
    secret: {secretName: {{ $p.dashboard.tlsSecret }}}
  {{- end }}
  {{- if $p.keyVault.name }}
  - name: key-vault
    csi:
      driver: secrets-store.csi.k8s.io
      readOnly: true
      volumeAttributes: {secretProviderClass: {{ $p.fullname }}}
  {{- end }}
  {{- with $p.volumes }}{{ toYaml . | nindent 2 }}{{ end }}
{{- include "sluice.spread" (dict "root" .root "name" $p.name "values" $p) }}
{{- with include "sluice.scheduling" $p }}{{ . }}{{ end }}
{{- end }}
