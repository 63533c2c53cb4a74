package kubernetes

import (
	"strings"
	"testing"
)

// FuzzKubeconfig: any text is a kubeconfig or one short error on one line; what it leads to is
// a connection or such an error. Files that it names are not read.
func FuzzKubeconfig(f *testing.F) {
	for _, text := range []string{
		"", "{}", "a: *b", "users: [{name: u, user: {token: t}}]", "clusters: [null]\nusers: &u [{name: 1, user: {exec: {env: [{}]}}}]\ncontexts: *u",
		`{"current-context": "x", "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}], "clusters": [{"name": "c",
			"cluster": {"server": "https://api", "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {1: .nan}}]}}],
			"users": [{"name": "u", "user": {"exec": {"command": "p", "apiVersion": "client.authentication.k8s.io/v1beta1", "provideClusterInfo": true}}}]}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var k kubeconfig
		if err := k.add("config", text); err != nil {
			if len(err.Error()) > 4*len(text)+100 || strings.Contains(err.Error(), "\n") {
				t.Errorf("the error is %q", err)
			}
			return
		}
		for _, at := range k.Contexts {
			c, err := k.connection(at.Name)
			if err != nil || c.user.check() != nil || c.cluster.check() != nil || c.user.Exec == nil {
				continue
			}
			c.cluster.CertificateAuthority = ""
			if p, err := newPlugin(c.user.Exec, &c.cluster); err == nil && len(p.env) != len(c.user.Exec.Env)+1 {
				t.Errorf("the plug-in gets %q", p.env)
			}
		}
	})
}
