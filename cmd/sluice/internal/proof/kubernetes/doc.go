// Package kubernetes tests deploy/, the Helm chart and the Kustomize manifests made of it,
// against a kube-apiserver and etcd, and the autoscaler's Kubernetes target with the rights
// that the chart grants. There are no nodes: objects are checked, stored, authorized and
// scaled, but no pod runs.
//
// scripts/install-kubernetes installs the programs; then
//
//	go test ./cmd/sluice/internal/proof/kubernetes
//
// With -update it rewrites docs/reference/chart.md.
package kubernetes
