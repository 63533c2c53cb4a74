package kubernetes

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sluice-go/sluice/autoscale/internal/subprocess"
	"github.com/sluice-go/sluice/internal/humanize"
)

// execVersions are the versions of ExecCredential that plug-ins are run with, the newest
// first.
var execVersions = []string{"client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"}

// plugin is a program that prints credentials, as kubelogin of AKS. It is run when they are
// missing, have expired, or are no longer accepted.
type plugin struct {
	config *execConfig
	env    []string
	turn   chan struct{} // held by who reads or writes last
	last   *credential
}

// execCredential is the input of a plug-in, in KUBERNETES_EXEC_INFO, and its output.
type execCredential struct {
	Kind       string      `json:"kind"`
	APIVersion string      `json:"apiVersion"`
	Spec       execSpec    `json:"spec"`
	Status     *execStatus `json:"status,omitempty"`
}

type execSpec struct {
	Cluster     *execCluster `json:"cluster,omitempty"`
	Interactive bool         `json:"interactive"`
}

type execCluster struct {
	Server                   string `json:"server"`
	TLSServerName            string `json:"tls-server-name,omitempty"`
	Insecure                 bool   `json:"insecure-skip-tls-verify,omitempty"`
	CertificateAuthorityData []byte `json:"certificate-authority-data,omitempty"`
	ProxyURL                 string `json:"proxy-url,omitempty"`
	DisableCompression       bool   `json:"disable-compression,omitempty"`
	Config                   any    `json:"config,omitempty"`
}

type execStatus struct {
	ExpirationTimestamp   time.Time `json:"expirationTimestamp"`
	Token                 string    `json:"token"`
	ClientCertificateData string    `json:"clientCertificateData"`
	ClientKeyData         string    `json:"clientKeyData"`
}

// newPlugin prepares a plug-in. It is not run before credentials are needed.
func newPlugin(config *execConfig, c *cluster) (*plugin, error) {
	info := execCredential{Kind: "ExecCredential", APIVersion: config.APIVersion}
	if config.ProvideClusterInfo {
		authority, err := c.authority()
		if err != nil {
			return nil, err
		}
		info.Spec.Cluster = &execCluster{
			Server: c.Server, TLSServerName: c.TLSServerName, Insecure: c.Insecure, CertificateAuthorityData: authority,
			ProxyURL: c.ProxyURL, DisableCompression: c.DisableCompression,
		}
		for _, e := range c.Extensions {
			if e.Name == "client.authentication.k8s.io/exec" {
				info.Spec.Cluster.Config = e.Extension
			}
		}
	}
	text, err := json.Marshal(info)
	if err != nil {
		return nil, errors.New("the cluster's extension client.authentication.k8s.io/exec is not what JSON can hold: correct it")
	}
	p := &plugin{config: config, turn: make(chan struct{}, 1)}
	for _, v := range config.Env {
		p.env = append(p.env, v.Name+"="+v.Value)
	}
	p.env = append(p.env, "KUBERNETES_EXEC_INFO="+string(text))
	return p, nil
}

// credential returns the last credentials, or if they have expired new ones.
func (p *plugin) credential(ctx context.Context) (*credential, error) {
	if err := p.take(ctx); err != nil {
		return nil, err
	}
	defer p.release()
	if p.last != nil && (p.last.expires.IsZero() || time.Now().Before(p.last.expires)) {
		return p.last, nil
	}
	fresh, err := p.run(ctx)
	if err != nil {
		return nil, fmt.Errorf("exec plug-in %s: %w", filepath.Base(p.config.Command), err)
	}
	p.last = fresh
	return fresh, nil
}

// forget drops refused credentials, unless newer ones have replaced them.
func (p *plugin) forget(ctx context.Context, refused *credential) error {
	if err := p.take(ctx); err != nil {
		return err
	}
	defer p.release()
	if p.last == refused {
		p.last = nil
	}
	return nil
}

func (p *plugin) take(ctx context.Context) error {
	select {
	case p.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *plugin) release() { <-p.turn }

// pluginTimeout bounds a run of a plug-in, most of which send a request or two.
const pluginTimeout = time.Minute

func (p *plugin) run(ctx context.Context) (*credential, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, pluginTimeout,
		fmt.Errorf("not completed within %v: choose a login without questions, of kubelogin --login azurecli, workloadidentity, msi or spn", pluginTimeout))
	defer cancel()
	out, err := subprocess.Run(ctx, slices.Concat(os.Environ(), p.env), append([]string{p.config.Command}, p.config.Args...))
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		hint := cmp.Or(humanize.Shorten(p.config.InstallHint, maxMessage), "install it, or write its path into exec.command")
		return nil, fmt.Errorf("there is no such program: %s", hint)
	}
	if failed := (*subprocess.Error)(nil); errors.As(err, &failed) {
		return nil, fmt.Errorf("%w: run it by hand to see why", failed.Err) // what it has printed may be a token
	}
	if err != nil {
		return nil, err
	}
	return p.parse(out)
}

// parse reads what a plug-in has printed. Errors show nothing of it: it may be a token.
func (p *plugin) parse(out []byte) (*credential, error) {
	var printed execCredential
	if err := json.Unmarshal(out, &printed); err != nil || printed.Kind != "ExecCredential" || printed.Status == nil {
		return nil, errors.New("it did not print an ExecCredential with a status in JSON: look at its output")
	}
	status := printed.Status
	switch {
	case printed.APIVersion != p.config.APIVersion:
		return nil, fmt.Errorf("it printed another apiVersion than %s: write its own into exec.apiVersion", p.config.APIVersion)
	case status.Token+status.ClientCertificateData+status.ClientKeyData == "":
		return nil, errors.New("it printed neither a token nor a certificate: look at its output")
	case (status.ClientCertificateData == "") != (status.ClientKeyData == ""):
		return nil, errors.New("it printed a certificate without a key, or the reverse: look at its output")
	}
	c := &credential{expires: status.ExpirationTimestamp}
	if token := strings.TrimSpace(status.Token); token != "" {
		c.authorization = "Bearer " + token
	}
	if status.ClientCertificateData != "" {
		pair, err := tls.X509KeyPair([]byte(status.ClientCertificateData), []byte(status.ClientKeyData))
		if err != nil {
			return nil, fmt.Errorf("its certificate: %w", err)
		}
		c.certificate = &pair
	}
	return c, nil
}
