package kubernetes_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/autoscale/target/kubernetes"
)

// TestMerge: of the files in KUBECONFIG the first one that has an entry counts, and paths are
// relative to the file that has them.
func TestMerge(t *testing.T) {
	c := newCluster(t)
	c.write("token", "hunter2")
	c.write("ca.crt", string(c.ca))
	first := c.write("first", `
# the user only
users: [{name: u, user: {tokenFile: token}}]
contexts: [{name: a, context: {cluster: c, user: u, namespace: shop}}]
current-context: a
`)
	other := filepath.Join(filepath.Dir(c.config), "other")
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	second := c.write("other/second", `{"users": [{"name": "u", "user": {"token": "wrong"}}], "current-context": "b",
		"contexts": [{"name": "b", "context": {"cluster": "c", "user": "u", "namespace": "elsewhere"}}],
		"clusters": [{"name": "c", "cluster": {"server": "`+c.server.URL+`", "certificate-authority": "../ca.crt"}}]}`)
	list := func(paths ...string) { t.Setenv("KUBECONFIG", strings.Join(paths, string(filepath.ListSeparator))) }
	list(first, filepath.Join(other, "missing"), "", second)
	if n, err := c.read(""); err != nil || n != 2 {
		t.Errorf("%d, %v", n, err)
	}
	list(second, first)
	if _, err := c.read(""); err == nil || !strings.Contains(err.Error(), "Deployment elsewhere/workers") || !strings.Contains(err.Error(), "does not accept") {
		t.Errorf("in the other order: %v", err)
	}
	if _, err := kubernetes.New(&kubernetes.Config{Name: "workers", Context: "a", Namespace: "other"}); err != nil {
		t.Error(err)
	}
	home := t.TempDir()
	list()
	t.Setenv("HOME", home)
	c.config = filepath.Join(home, ".kube", "config")
	if err := os.Mkdir(filepath.Dir(c.config), 0o700); err != nil {
		t.Fatal(err)
	}
	c.kubeconfig(nil, object{"token": "hunter2"})
	if n, err := c.read(""); err != nil || n != 2 {
		t.Errorf("at home: %d, %v", n, err)
	}
}

// TestMistakes: a kubeconfig that cannot be used is an error at the start, which says what to
// do, and shows no secret.
func TestMistakes(t *testing.T) {
	c := newCluster(t)
	exec := func(more object) object {
		all := object{"command": "kubelogin", "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never"}
		for key, value := range more {
			all[key] = value
		}
		return object{"exec": all}
	}
	for _, is := range []struct {
		cluster, user object
		want          string
	}{
		{object{"server": ""}, nil, "server: write a URL"},
		{object{"server": "hunter2:6443"}, nil, "server: write a URL"},
		{object{"proxy-url": "ftp://me:hunter2@proxy"}, nil, "proxy-url: write a URL that starts with"},
		{object{"certificate-authority": "ca", "certificate-authority-data": "aHVudGVyMg=="}, nil, "both certificate-authority and"},
		{object{"certificate-authority-data": "aHVudGVyMg==", "insecure-skip-tls-verify": true}, nil, "both insecure-skip-tls-verify and"},
		{object{"certificate-authority-data": "aHVudGVyMg=="}, nil, "certificate-authority: it has no certificate"},
		{object{"certificate-authority-data": "hunter2!"}, nil, "certificate-authority-data: illegal base64"},
		{object{"certificate-authority": "none"}, nil, "certificate-authority: open "},
		{nil, object{"auth-provider": object{"name": "azure", "config": object{"access-token": "hunter2"}}}, `auth-provider "azure" is not supported`},
		{nil, object{"token": "hunter2", "username": "me"}, "both token and username"},
		{nil, object{"tokenFile": "none"}, "tokenFile: open "},
		{nil, object{"client-certificate": "a", "client-certificate-data": "aHVudGVyMg=="}, "both client-certificate and"},
		{nil, object{"client-certificate": "a", "client-key": "a", "client-key-data": "aHVudGVyMg=="}, "both client-key and"},
		{nil, object{"client-certificate-data": "aHVudGVyMg=="}, "client-certificate without client-key"},
		{nil, object{"client-certificate-data": "aHVudGVyMg==", "client-key-data": "aHVudGVyMg=="}, "client-certificate and client-key: tls: failed to find any PEM data"},
		{nil, object{"as-groups": []string{"a"}}, "without as"},
		{nil, exec(object{"command": ""}), "exec: command is missing"},
		{nil, exec(object{"apiVersion": "client.authentication.k8s.io/v1alpha1"}), "use a version of the plug-in with client.authentication.k8s.io/v1"},
		{nil, exec(object{"interactiveMode": ""}), "interactiveMode is missing: write Never"},
		{nil, exec(object{"interactiveMode": "Always"}), "interactiveMode Always is not supported"},
		{nil, exec(object{"interactiveMode": "Perhaps"}), `interactiveMode "Perhaps": write`},
		{nil, exec(object{"env": []any{object{"value": "hunter2"}}}), "env has an entry"},
	} {
		if _, err := c.read(c.kubeconfig(is.cluster, is.user)); err == nil || !strings.Contains(err.Error(), is.want) || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v %v: %v, want %q", is.cluster, is.user, err, is.want)
		}
	}
}

// TestFiles: files that are no kubeconfig, or lead nowhere.
func TestFiles(t *testing.T) {
	c := newCluster(t)
	for text, want := range map[string]string{
		"":                                  "no current context",
		"current-context: x":                "context x: there is no such context",
		"users: {token: hunter2}":           "line 1: not valid YAML, or a value of the wrong type",
		"users: [{name: u, user: hunter2}]": "line 1: ",
		"a: b\nusers: *hunter2":             "the whole file: ",
		"\thunter2: [":                      "the whole file: ",
		"users: [{name: hunter2":            "line 1: ",
		"clusters: [{name: a}, {name: a}]":  `clusters has two entries "a": remove one`,
		"{current-context: x, contexts: [{name: x, context: {cluster: c, user: u}}]}":                        `the cluster "c" is missing: add it`,
		"{current-context: x, contexts: [{name: x, context: {cluster: c, user: u}}], clusters: [{name: c}]}": `the user "u" is missing: add it`,
		strings.Repeat("# ", 3<<20): "larger than",
	} {
		if _, err := c.read(c.write("config", text)); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.80s: %v, want %q", text, err, want)
		}
	}
	if _, err := c.read(filepath.Join(t.TempDir(), "none")); err == nil || !strings.Contains(err.Error(), "read kubeconfig: open ") {
		t.Errorf("no such file: %v", err)
	}
}
