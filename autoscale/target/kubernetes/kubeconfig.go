package kubernetes

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// kubeconfig is a kubeconfig, or several, one after the other: of two entries with the same
// name the first one holds. Keys that are not used here are ignored, as kubectl does it.
type kubeconfig struct {
	Clusters, Users, Contexts []entry
	CurrentContext            string `yaml:"current-context"`

	paths []string
}

// entry is an element of clusters, users or contexts; only the field of its list is set.
type entry struct {
	Name    string
	Cluster cluster
	User    user
	Context struct{ Cluster, User, Namespace string }
}

type cluster struct {
	Server                   string
	TLSServerName            string `yaml:"tls-server-name"`
	Insecure                 bool   `yaml:"insecure-skip-tls-verify"`
	CertificateAuthority     string `yaml:"certificate-authority"`
	CertificateAuthorityData string `yaml:"certificate-authority-data"`
	ProxyURL                 string `yaml:"proxy-url"`
	DisableCompression       bool   `yaml:"disable-compression"`
	Extensions               []struct {
		Name      string
		Extension any
	}
}

type user struct {
	Token, Username, Password string
	TokenFile                 string              `yaml:"tokenFile"`
	ClientCertificate         string              `yaml:"client-certificate"`
	ClientCertificateData     string              `yaml:"client-certificate-data"`
	ClientKey                 string              `yaml:"client-key"`
	ClientKeyData             string              `yaml:"client-key-data"`
	As                        string              // who is impersonated
	AsUID                     string              `yaml:"as-uid"`
	AsGroups                  []string            `yaml:"as-groups"`
	AsExtra                   map[string][]string `yaml:"as-user-extra"`
	Exec                      *execConfig
	AuthProvider              *struct{ Name string } `yaml:"auth-provider"`
}

// execConfig says how to run a plug-in that prints credentials.
type execConfig struct {
	APIVersion         string `yaml:"apiVersion"`
	Command            string
	Args               []string
	Env                []struct{ Name, Value string }
	InstallHint        string `yaml:"installHint"`
	ProvideClusterInfo bool   `yaml:"provideClusterInfo"`
	InteractiveMode    string `yaml:"interactiveMode"`
}

// readKubeconfigs reads the file at path; without one those of KUBECONFIG, or else
// ~/.kube/config, as far as they exist.
func readKubeconfigs(path string) (*kubeconfig, error) {
	paths := []string{path}
	if path == "" {
		if list := os.Getenv("KUBECONFIG"); list != "" {
			paths = filepath.SplitList(list)
		} else if home, err := os.UserHomeDir(); err == nil {
			paths = []string{filepath.Join(home, ".kube", "config")}
		}
	}
	var all kubeconfig
	for _, p := range paths {
		if p == "" {
			continue
		}
		text, err := readFile(p)
		if path == "" && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read kubeconfig: %w", err)
		}
		if err := all.add(p, text); err != nil {
			return nil, fmt.Errorf("kubeconfig %s: %w", p, err)
		}
	}
	return &all, nil
}

// add appends the entries of a file.
func (k *kubeconfig) add(path string, text []byte) error {
	var one kubeconfig
	if err := yaml.Unmarshal(text, &one); err != nil {
		return withoutValues(err)
	}
	for name, list := range map[string][]entry{"clusters": one.Clusters, "users": one.Users, "contexts": one.Contexts} {
		for i, e := range list {
			if find(list[:i], e.Name) != nil {
				return fmt.Errorf("%s has two entries %q: remove one", name, e.Name)
			}
		}
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	dir := filepath.Dir(absolute)
	for i := range one.Clusters {
		resolve(dir, &one.Clusters[i].Cluster.CertificateAuthority)
	}
	for i := range one.Users {
		u := &one.Users[i].User
		resolve(dir, &u.ClientCertificate, &u.ClientKey, &u.TokenFile)
		// A command without a directory is looked up in PATH.
		if u.Exec != nil && strings.ContainsRune(u.Exec.Command, filepath.Separator) {
			resolve(dir, &u.Exec.Command)
		}
	}
	k.Clusters = append(k.Clusters, one.Clusters...)
	k.Users = append(k.Users, one.Users...)
	k.Contexts = append(k.Contexts, one.Contexts...)
	k.CurrentContext = cmp.Or(k.CurrentContext, one.CurrentContext)
	k.paths = append(k.paths, path)
	return nil
}

// resolve makes paths absolute that are relative to a directory.
func resolve(dir string, paths ...*string) {
	for _, p := range paths {
		if *p != "" && !filepath.IsAbs(*p) {
			*p = filepath.Join(dir, *p)
		}
	}
}

var yamlLine = regexp.MustCompile(`line \d+`)

// withoutValues returns an error for one of the YAML parser, whose text may show values.
func withoutValues(err error) error {
	place := cmp.Or(yamlLine.FindString(err.Error()), "the whole file")
	return fmt.Errorf("%s: not valid YAML, or a value of the wrong type: correct it", place)
}

func find(list []entry, name string) *entry {
	i := slices.IndexFunc(list, func(e entry) bool { return e.Name == name })
	if i < 0 {
		return nil
	}
	return &list[i]
}

func (k *kubeconfig) empty() bool {
	return len(k.Clusters) == 0 && len(k.Users) == 0 && len(k.Contexts) == 0 && k.CurrentContext == ""
}

// connection returns what a context leads to, by default the current one.
func (k *kubeconfig) connection(name string) (*connection, error) {
	source := "kubeconfig " + strings.Join(k.paths, string(filepath.ListSeparator))
	if name = cmp.Or(name, k.CurrentContext); name == "" {
		return nil, fmt.Errorf("%s: it has no current context: name one with context", source)
	}
	source += ", context " + name
	chosen := find(k.Contexts, name)
	if chosen == nil {
		return nil, fmt.Errorf("%s: there is no such context: name one that kubectl config get-contexts shows", source)
	}
	server, account := find(k.Clusters, chosen.Context.Cluster), find(k.Users, chosen.Context.User)
	if server == nil {
		return nil, fmt.Errorf("%s: the cluster %q is missing: add it", source, chosen.Context.Cluster)
	}
	if account == nil {
		return nil, fmt.Errorf("%s: the user %q is missing: add it", source, chosen.Context.User)
	}
	return &connection{source: source, cluster: server.Cluster, user: account.User, namespace: chosen.Context.Namespace}, nil
}

// check returns an error for settings that contradict each other.
func (c *cluster) check() error {
	switch authority := c.CertificateAuthority + c.CertificateAuthorityData; {
	case c.CertificateAuthority != "" && c.CertificateAuthorityData != "":
		return errors.New("both certificate-authority and certificate-authority-data: remove one")
	case c.Insecure && authority != "":
		return errors.New("both insecure-skip-tls-verify and certificate-authority: remove one")
	}
	return nil
}

// check returns an error for settings that contradict each other, or are not supported.
func (u *user) check() error {
	certificate, key := u.ClientCertificate+u.ClientCertificateData, u.ClientKey+u.ClientKeyData
	switch {
	case u.AuthProvider != nil:
		return fmt.Errorf("auth-provider %q is not supported, Kubernetes has none any more: use a plug-in with exec, on AKS by kubelogin convert-kubeconfig", u.AuthProvider.Name)
	case u.Token != "" && u.Username+u.Password != "":
		return errors.New("both token and username: remove one")
	case u.ClientCertificate != "" && u.ClientCertificateData != "":
		return errors.New("both client-certificate and client-certificate-data: remove one")
	case u.ClientKey != "" && u.ClientKeyData != "":
		return errors.New("both client-key and client-key-data: remove one")
	case certificate != "" && key == "":
		return errors.New("client-certificate without client-key: add it")
	case u.As == "" && (u.AsUID != "" || len(u.AsGroups) > 0 || len(u.AsExtra) > 0):
		return errors.New("as-uid, as-groups or as-user-extra without as: add it")
	}
	return u.Exec.check()
}

// check returns an error for a plug-in that cannot be run; nil is none.
func (e *execConfig) check() error {
	switch {
	case e == nil:
		return nil
	case e.Command == "":
		return errors.New("exec: command is missing: add it")
	case !slices.Contains(execVersions, e.APIVersion):
		return fmt.Errorf("exec: apiVersion %q is not supported: use a version of the plug-in with %s", e.APIVersion, execVersions[0])
	case e.InteractiveMode == "" && e.APIVersion == execVersions[0]:
		return errors.New("exec: interactiveMode is missing: write Never")
	case e.InteractiveMode == "Always":
		return errors.New("exec: interactiveMode Always is not supported, as nobody is there to answer: choose a login without questions, of kubelogin --login azurecli, workloadidentity, msi or spn")
	case !slices.Contains([]string{"", "Never", "IfAvailable"}, e.InteractiveMode):
		return fmt.Errorf("exec: interactiveMode %q: write Never or IfAvailable", e.InteractiveMode)
	}
	for _, v := range e.Env {
		if v.Name == "" || strings.ContainsAny(v.Name, "=\x00") || strings.Contains(v.Value, "\x00") {
			return errors.New("exec: env has an entry that cannot be a variable: correct it")
		}
	}
	return nil
}

// impersonate adds who is impersonated to the header of a request.
func (u *user) impersonate(h http.Header) {
	if u.As == "" {
		return
	}
	h.Set("Impersonate-User", u.As)
	if u.AsUID != "" {
		h.Set("Impersonate-Uid", u.AsUID)
	}
	for _, group := range u.AsGroups {
		h.Add("Impersonate-Group", group)
	}
	for key, values := range u.AsExtra {
		for _, value := range values {
			h.Add("Impersonate-Extra-"+strings.ReplaceAll(url.QueryEscape(key), "+", "%20"), value)
		}
	}
}
