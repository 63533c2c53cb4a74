{{/* The Service for metrics and its ServiceMonitor, of a dict with root, name and fullname. */}}
{{- define "sluice.metrics" }}
---
# For metrics, of pods that are not ready too.
apiVersion: v1
kind: Service
metadata:
  name: {{ .fullname }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "sluice.labels" . | nindent 4 }}
    sluice/service: metrics
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector: {{- include "sluice.selector" . | nindent 4 }}
  ports:
    - {name: metrics, port: 9090, targetPort: metrics}
{{- with .root.Values.serviceMonitor }}
{{- if .enabled }}
---
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata:
  name: {{ $.fullname }}
  namespace: {{ $.root.Release.Namespace }}
  labels:
    {{- include "sluice.labels" $ | nindent 4 }}
    {{- with .labels }}{{ toYaml . | nindent 4 }}{{ end }}
spec:
  selector:
    matchLabels:
      {{- include "sluice.selector" $ | nindent 6 }}
      sluice/service: metrics
  endpoints:
    - {port: metrics, path: /metrics, interval: {{ .interval }}}
{{- end }}
{{- end }}
{{- end }}
