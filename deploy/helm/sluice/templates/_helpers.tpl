{{/* The name that all objects begin with. */}}
{{- define "sluice.fullname" -}}
{{- if .Values.fullnameOverride -}}{{ .Values.fullnameOverride }}
{{- else if contains "sluice" .Release.Name -}}{{ .Release.Name }}
{{- else -}}{{ .Release.Name }}-sluice
{{- end -}}
{{- end }}

{{/* Labels that select pods; they never change. Of a dict with root and name. */}}
{{- define "sluice.selector" -}}
app.kubernetes.io/name: sluice
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .name }}
{{- end }}

{{/* Labels of pods: without the chart's version, which would restart them. Of a dict with root and name. */}}
{{- define "sluice.podLabels" -}}
{{ include "sluice.selector" . }}
{{- with .root.Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Labels of an object, of a dict with root and name. */}}
{{- define "sluice.labels" -}}
{{ include "sluice.podLabels" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{/* A pipeline: the keys of consumer, with its own, its name (name), the name of its objects (fullname) and its kind. As JSON, of a dict with root, name and pipeline. */}}
{{- define "sluice.pipeline" -}}
{{- $p := dict }}
{{- range $key, $value := .root.Values.consumer }}{{ $_ := set $p $key $value }}{{ end }}
{{- range $key, $value := .pipeline }}
{{- $merged := $value }}
{{- if and (kindIs "map" $value) (kindIs "map" (get $p $key)) }}
{{- $merged = dict }}
{{- range $k, $v := get $p $key }}{{ $_ := set $merged $k $v }}{{ end }}
{{- range $k, $v := $value }}{{ $_ := set $merged $k $v }}{{ end }}
{{- end }}
{{- $_ := set $p $key $merged }}
{{- end }}
{{- $fullname := printf "%s-%s" (include "sluice.fullname" .root) .name }}
{{- if gt (len $fullname) 52 }}{{ fail (printf "pipelines.%s: the name %s is longer than 52 characters: choose a shorter name or fullnameOverride" .name $fullname) }}{{ end }}
{{- $file := fromYaml $p.file }}
{{- if hasKey $file "Error" }}{{ fail (printf "pipelines.%s.file: this is not YAML: %s" .name $file.Error) }}{{ end }}
{{- if not $p.kind }}
{{- $numbers := list "float64" "int64" "int" }}
{{- $fixed := has (kindOf (get $file "partitions")) $numbers }}
{{- range $stage := values (get $file "stages" | default dict) }}{{ if kindIs "map" $stage }}{{ $fixed = or $fixed (has (kindOf (get $stage "partitions")) $numbers) }}{{ end }}{{ end }}
{{- $_ := set $p "kind" (ternary "StatefulSet" "Deployment" $fixed) }}
{{- end }}
{{- $target := printf "%s/%s/%s" .root.Release.Namespace $p.kind $fullname }}
{{- if not .root.Values.autoscaler.dryRun }}{{/* it scales nothing */}}
{{- range fromJsonArray (include "sluice.targets" .root) }}
{{- if eq $target (printf "%s/%s/%s" .namespace .kind .name) }}{{ $_ := unset $p "replicas" }}{{ end }}
{{- end }}
{{- end }}
{{- if and $p.dashboard.enabled (not $p.dashboard.tokenSecret.name) }}{{ fail (printf "pipelines.%s.dashboard.tokenSecret.name: the dashboard needs a token: name a Secret" .name) }}{{ end }}
{{- range $p.args }}{{- if hasPrefix "--stop-timeout" . }}{{ fail (printf "pipelines.%s.args: %s: set stopTimeoutSeconds, from which the pod's grace period follows" $.name .) }}{{ end }}{{ end }}
{{- if and $p.keyVault.name (not $p.workloadIdentity.clientId) }}{{ fail (printf "pipelines.%s.keyVault: the vault needs a workload identity: set workloadIdentity.clientId" .name) }}{{ end }}
{{- if and $p.keyVault.name (not $p.keyVault.secrets) }}{{ fail (printf "pipelines.%s.keyVault.secrets: name the variables and their secrets in the vault" .name) }}{{ end }}
{{- $_ := set $p "name" .name }}
{{- $_ := set $p "fullname" $fullname }}
{{- /* The driver writes this Secret when it is missing, and not when its variables change: so it has another name then. */}}
{{- if $p.keyVault.name }}{{ $_ := set $p "keyVaultSecret" (printf "%s-key-vault-%s" $fullname (toJson $p.keyVault | sha256sum | trunc 8)) }}{{ end }}
{{- toJson $p }}
{{- end }}

{{/* What the autoscaler's files scale on Kubernetes: a JSON array of namespace, kind and name. */}}
{{- define "sluice.targets" -}}
{{- $targets := list }}
{{- range $name, $text := .Values.autoscaler.files }}
{{- $file := fromYaml $text }}
{{- if hasKey $file "Error" }}{{ fail (printf "autoscaler.files.%s: this is not YAML: %s" $name $file.Error) }}{{ end }}
{{- with dig "target" "kubernetes" dict $file }}
{{- if or (not .name) (contains "${" (print .name .kind .namespace)) }}{{ fail (printf "autoscaler.files.%s: target.kubernetes: write name, kind and namespace without variables, so that the chart can grant the right to scale it" $name) }}{{ end }}
{{- $targets = append $targets (dict "namespace" (.namespace | default $.Release.Namespace) "kind" (.kind | default "Deployment") "name" .name) }}
{{- end }}
{{- end }}
{{- toJson $targets }}
{{- end }}

{{/* The autoscaler's files whose state is in SQLite, which is the default: a JSON array of names. */}}
{{- define "sluice.onDisk" -}}
{{- $names := list }}
{{- range $name, $text := .Values.autoscaler.files }}
{{- $state := get (fromYaml $text) "state" }}
{{- if not (and (kindIs "map" $state) (or (hasKey $state "postgres") (hasKey $state "azure"))) }}{{ $names = append $names $name }}{{ end }}
{{- end }}
{{- toJson $names }}
{{- end }}

{{- define "sluice.image" -}}
{{- if .Values.image.digest -}}{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* Nine tenths of a quantity of memory, as GOMEMLIMIT is written. */}}
{{- define "sluice.memoryLimit" -}}
{{- $units := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 }}
{{- $number := regexFind "^[0-9]+([.][0-9]+)?" (toString .) }}
{{- $unit := trimPrefix $number (toString .) }}
{{- if or (not $number) (not (hasKey $units $unit)) }}{{ fail (printf "resources.limits.memory: %v: write a number with Ki, Mi, Gi, Ti, k, M, G or T" .) }}{{ end }}
{{- printf "%dMiB" (max 1 (div (mulf $number (get $units $unit) 0.9 | int64) 1048576)) }}
{{- end }}

{{/* Keys of a container and its pod that are the same everywhere. They fit the Pod Security Standard "restricted". */}}
{{- define "sluice.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- define "sluice.podSecurity" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* Probes over HTTP, of the values of probes. */}}
{{- define "sluice.probes" -}}
# A database that is down for long makes the pod not ready. A restart would not help.
startupProbe:
  httpGet: {path: /livez, port: metrics}
  periodSeconds: 2
  timeoutSeconds: {{ .timeoutSeconds }}
  failureThreshold: {{ max 1 (div (add .startupSeconds 1) 2) }}
livenessProbe:
  httpGet: {path: /livez, port: metrics}
  periodSeconds: {{ .periodSeconds }}
  timeoutSeconds: {{ .timeoutSeconds }}
  failureThreshold: {{ .failureThreshold }}
readinessProbe:
  httpGet: {path: /readyz, port: metrics}
  periodSeconds: {{ .periodSeconds }}
  timeoutSeconds: {{ .timeoutSeconds }}
  failureThreshold: {{ .failureThreshold }}
{{- end }}

{{/* How pods are spread, of a dict with root, name and values. */}}
{{- define "sluice.spread" -}}
{{- with .values.spreadOver }}
topologySpreadConstraints:
  {{- range . }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "sluice.selector" $ | nindent 8 }}
    {{- if ne $.values.kind "StatefulSet" }}
    matchLabelKeys: [pod-template-hash]
    {{- end }}
  {{- end }}
{{- end }}
{{- end }}

{{/* The volume with all pipelines' files, of the root. */}}
{{- define "sluice.pipelineFiles" -}}
- name: pipelines
  projected:
    sources:
      {{- range $name, $p := .Values.pipelines }}
      - configMap: {name: {{ include "sluice.fullname" $ }}-{{ $name }}-files}
      {{- else }}
      []
      {{- end }}
{{- end }}

{{/* The metadata of a pod that reads the pipelines' files too, of a dict with root, name, values and files, its own. */}}
{{- define "sluice.podMetadata" -}}
labels:
  {{- include "sluice.podLabels" . | nindent 2 }}
  {{- if .values.workloadIdentity.clientId }}
  azure.workload.identity/use: "true"
  {{- end }}
  {{- with .values.podLabels }}{{ toYaml . | nindent 2 }}{{ end }}
annotations:
  {{- $files := list .files }}
  {{- range .root.Values.pipelines }}{{ $files = append $files .file }}{{ end }}
  checksum/config: {{ toJson $files | sha256sum | quote }}
  {{- with include "sluice.identity" .values }}{{ . | nindent 2 }}{{ end }}
  {{- with .values.podAnnotations }}{{ toYaml . | nindent 2 }}{{ end }}
{{- end }}

{{/* An annotation that restarts pods when their identity changes: they get it when they are created. */}}
{{- define "sluice.identity" -}}
{{- if or .workloadIdentity.clientId .serviceAccountAnnotations -}}
checksum/identity: {{ toJson (list .workloadIdentity .serviceAccountAnnotations) | sha256sum | quote }}
{{- end }}
{{- end }}

{{/* Where pods run, of the values of a consumer or the autoscaler. */}}
{{- define "sluice.scheduling" -}}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}

{{/* A ServiceAccount, of a dict with root, name, fullname and values. */}}
{{- define "sluice.serviceAccount" -}}
{{- if not .values.serviceAccountName }}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .fullname }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "sluice.labels" . | nindent 4 }}
  {{- with include "sluice.serviceAccountAnnotations" .values }}
  annotations: {{- . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false
{{- end }}
{{- end }}

{{- define "sluice.serviceAccountAnnotations" -}}
{{- with .workloadIdentity.clientId }}
azure.workload.identity/client-id: {{ . | quote }}
{{- end }}
{{- with .workloadIdentity.tenantId }}
azure.workload.identity/tenant-id: {{ . | quote }}
{{- end }}
{{- with .serviceAccountAnnotations }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* A PodDisruptionBudget, of a dict with root, name, fullname and maxUnavailable. */}}
{{- define "sluice.disruptionBudget" }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .fullname }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "sluice.labels" . | nindent 4 }}
spec:
  maxUnavailable: {{ .maxUnavailable }}
  # A pod that is not ready must not hold up the drain of its node.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels: {{- include "sluice.selector" . | nindent 6 }}
{{- end }}
