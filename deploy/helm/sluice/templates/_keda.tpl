{{/* The spec of a pod of the external scaler, of a dict with root, name, fullname and values. */}}
{{- define "sluice.kedaPod" -}}
{{- $k := .values }}
{{- $root := .root }}
serviceAccountName: {{ $k.serviceAccountName | default .fullname }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{ include "sluice.podSecurity" . }}
containers:
  - name: sluice
    image: {{ include "sluice.image" $root }}
    imagePullPolicy: {{ $root.Values.image.pullPolicy }}
    args:
      - autoscale
      - keda
      - /etc/sluice-keda/lags.yaml
      - --listen=:6000
      {{- if $k.tlsSecret }}
      - --tls-cert=/etc/sluice-tls/tls.crt
      - --tls-key=/etc/sluice-tls/tls.key
      {{- end }}
      - --log-format={{ $root.Values.log.format }}
      - --log-level={{ $root.Values.log.level }}
      {{- range $k.args }}
      - {{ . | quote }}
      {{- end }}
    ports:
      - {name: keda, containerPort: 6000}
    env:
      {{- with dig "limits" "memory" "" $k.resources }}
      - {name: GOMEMLIMIT, value: {{ include "sluice.memoryLimit" . }}}
      {{- end }}
      {{- with $k.env }}{{ toYaml . | nindent 6 }}{{ end }}
    {{- with $k.envFrom }}
    envFrom: {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- range $probe := list "livenessProbe" "readinessProbe" }}
    {{ $probe }}:
      {{- if $k.tlsSecret }}
      # The kubelet's probes over gRPC speak plain text only.
      tcpSocket: {port: keda}
      {{- else }}
      grpc: {port: 6000}
      {{- end }}
    {{- end }}
    {{- with $k.resources }}
    resources: {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- include "sluice.containerSecurity" . | nindent 4 }}
    volumeMounts:
      - {name: config, mountPath: /etc/sluice-keda, readOnly: true}
      - {name: pipelines, mountPath: /etc/sluice, readOnly: true}
      {{- if $k.tlsSecret }}
      - {name: tls, mountPath: /etc/sluice-tls, readOnly: true}
      {{- end }}
      {{- with $k.volumeMounts }}{{ toYaml . | nindent 6 }}{{ end }}
volumes:
  - name: config
    configMap: {name: {{ .fullname }}-files}
  {{- include "sluice.pipelineFiles" $root | nindent 2 }}
  {{- if $k.tlsSecret }}
  - name: tls
    secret: {secretName: {{ $k.tlsSecret }}}
  {{- end }}
  {{- with $k.volumes }}{{ toYaml . | nindent 2 }}{{ end }}
{{- include "sluice.spread" . }}
{{- with include "sluice.scheduling" $k }}{{ . }}{{ end }}
{{- end }}
