package kubernetes

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sluice-go/sluice/autoscale/internal/httpfetch"
)

// connection is an API server, and who connects to it.
type connection struct {
	source    string // where it is configured, for errors
	server    *url.URL
	cluster   cluster
	user      user
	namespace string       // may be empty
	plugin    *plugin      // runs user.Exec, nil if there is none
	client    *http.Client // the program's own, which authenticates itself, else nil
}

// connect finds out which API server cfg means.
func connect(cfg *Config) (*connection, error) {
	if cfg.Client != nil || cfg.Server != "" {
		server, err := httpfetch.ParseURL(cfg.Server)
		switch {
		case cfg.Client == nil:
			return nil, errors.New("set both Server and Client")
		case err != nil:
			return nil, fmt.Errorf("the URL of Server: %w", err)
		}
		return &connection{source: "the program's own connection", server: server, client: cfg.Client}, nil
	}
	k, err := readKubeconfigs(cfg.Kubeconfig)
	if err != nil {
		return nil, err
	}
	if k.empty() && cfg.Kubeconfig == "" {
		const missing = "neither KUBECONFIG nor ~/.kube/config leads to a kubeconfig"
		if cfg.Context != "" {
			return nil, fmt.Errorf("context %s: %s: name a file with kubeconfig", cfg.Context, missing)
		}
		if c := inPod(); c != nil {
			return c, c.prepare()
		}
		return nil, errors.New(missing + ", and no service account of a pod is mounted: name a file with kubeconfig")
	}
	c, err := k.connection(cfg.Context)
	if err != nil {
		return nil, err
	}
	return c, c.prepare()
}

// serviceAccount is where Kubernetes mounts the service account of a pod. Tests replace it.
var serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount"

// inPod returns the connection of a pod's service account, nil if there is none.
func inPod() *connection {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	token := filepath.Join(serviceAccount, "token")
	if info, err := os.Stat(token); host == "" || port == "" || err != nil || info.IsDir() {
		return nil
	}
	return &connection{
		source:  "the pod's service account",
		cluster: cluster{Server: "https://" + net.JoinHostPort(host, port), CertificateAuthority: filepath.Join(serviceAccount, "ca.crt")},
		user:    user{TokenFile: token},
	}
}

// podNamespace returns the namespace of a pod with a service account, or "".
func podNamespace() string {
	if inPod() == nil {
		return ""
	}
	if name := os.Getenv("POD_NAMESPACE"); name != "" {
		return name
	}
	text, _ := readFile(filepath.Join(serviceAccount, "namespace")) // without the file, it is not known
	return strings.TrimSpace(string(text))
}

// prepare checks all that can be checked without a request, and reads what files hold, so
// that a mistake is an error at the start.
func (c *connection) prepare() error {
	if err := c.tryPrepare(); err != nil {
		return fmt.Errorf("%s: %w", c.source, err)
	}
	return nil
}

func (c *connection) tryPrepare() (err error) {
	if c.server, err = httpfetch.ParseURL(c.cluster.Server); err != nil {
		return fmt.Errorf("server: %w", err)
	}
	c.server.RawQuery, c.server.Fragment = "", ""
	if err := c.cluster.check(); err != nil {
		return err
	}
	if err := c.user.check(); err != nil {
		return err
	}
	// Over plain HTTP nobody signs in: anybody could read the credentials.
	if c.server.Scheme == "http" {
		c.user = user{As: c.user.As, AsUID: c.user.AsUID, AsGroups: c.user.AsGroups, AsExtra: c.user.AsExtra}
		return nil
	}
	cred, err := c.user.credential()
	if err != nil {
		return err
	}
	if _, err := c.transport(cred.certificate); err != nil {
		return err
	}
	// As in kubectl, a plug-in is for users without credentials.
	if c.user.Exec != nil && cred.authorization == "" && cred.certificate == nil {
		c.plugin, err = newPlugin(c.user.Exec, &c.cluster)
	}
	return err
}

// credential is what a request is authenticated with.
type credential struct {
	authorization string // the header, may be empty
	certificate   *tls.Certificate
	expires       time.Time // zero: never
}

// credential returns the present credentials: files change in time.
func (c *connection) credential(ctx context.Context) (*credential, error) {
	if c.plugin != nil {
		return c.plugin.credential(ctx)
	}
	return c.user.credential()
}

// credential returns those that the user has without a plug-in.
func (u *user) credential() (*credential, error) {
	var c credential
	switch {
	case u.TokenFile != "":
		text, err := readFile(u.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("tokenFile: %w", err)
		}
		token := strings.TrimSpace(string(text))
		if token == "" {
			return nil, fmt.Errorf("tokenFile: %s is empty: write a token into it", u.TokenFile)
		}
		c.authorization = "Bearer " + token
	case u.Token != "":
		c.authorization = "Bearer " + u.Token
	case u.Username != "" || u.Password != "":
		c.authorization = "Basic " + base64.StdEncoding.EncodeToString([]byte(u.Username+":"+u.Password))
	}
	certificate, err := content("client-certificate", u.ClientCertificate, u.ClientCertificateData)
	if err != nil || certificate == nil {
		return &c, err
	}
	key, err := content("client-key", u.ClientKey, u.ClientKeyData)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("client-certificate and client-key: %w", err)
	}
	c.certificate = &pair
	return &c, nil
}

// transport returns a transport for one request.
func (c *connection) transport(certificate *tls.Certificate) (*http.Transport, error) {
	settings := &tls.Config{ServerName: c.cluster.TLSServerName, InsecureSkipVerify: c.cluster.Insecure}
	if certificate != nil {
		settings.Certificates = []tls.Certificate{*certificate}
	}
	authority, err := c.cluster.authority()
	if err != nil {
		return nil, err
	}
	if authority != nil {
		settings.RootCAs = x509.NewCertPool()
		if !settings.RootCAs.AppendCertsFromPEM(authority) {
			return nil, errors.New("certificate-authority: it has no certificate in PEM: correct it")
		}
	}
	proxy := http.ProxyFromEnvironment
	if c.cluster.ProxyURL != "" {
		to, err := parseProxy(c.cluster.ProxyURL)
		if err != nil {
			return nil, err
		}
		proxy = http.ProxyURL(to)
	}
	dialer := net.Dialer{Timeout: dialTimeout}
	return &http.Transport{
		Proxy: proxy, DialContext: dialer.DialContext, TLSClientConfig: settings, TLSHandshakeTimeout: handshakeTimeout,
		DisableKeepAlives: true, MaxResponseHeaderBytes: maxHeader,
	}, nil
}

// Bounds of a new connection, as [http.DefaultTransport] has them.
const (
	dialTimeout      = 30 * time.Second
	handshakeTimeout = 10 * time.Second
)

// maxHeader is the largest size of the header of a response in bytes.
const maxHeader = 64 << 10

func (c *cluster) authority() ([]byte, error) {
	return content("certificate-authority", c.CertificateAuthority, c.CertificateAuthorityData)
}

func parseProxy(text string) (*url.URL, error) {
	// The error says nothing of the text, which may hold a password.
	to, err := url.Parse(text)
	if err != nil || to.Host == "" || to.Scheme != "http" && to.Scheme != "https" && to.Scheme != "socks5" {
		return nil, errors.New("proxy-url: write a URL that starts with http://, https:// or socks5:// and a host")
	}
	return to, nil
}

// content returns what a file holds, or what is stated in base64 under the key with -data;
// nil if there is neither.
func content(key, path, data string) ([]byte, error) {
	text, err := []byte(nil), error(nil)
	switch {
	case data != "":
		key += "-data"
		text, err = base64.StdEncoding.DecodeString(data)
	case path != "":
		text, err = readFile(path)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return text, nil
}

// maxFile is the largest size of a kubeconfig, and of a file that it names, in bytes.
const maxFile = 4 << 20

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("%s: larger than %d bytes", path, maxFile)
	}
	return text, err
}
