package pipeline

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"os"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/sluice-go/sluice/eventhub"
	"github.com/sluice-go/sluice/internal/strictyaml"
)

// hub is what the file says about an event hub.
type hub struct {
	namespace
	name   string
	config eventhub.Config
}

// namespace is where hubs are, and who is asking.
type namespace struct {
	connection string // or else
	host       string // with
	credential string
	tls        *tls.Config
	at         *strictyaml.Node // connection or namespace; nil: neither is given
}

// read reads the namespace and, from the same mapping, more keys.
func (ns *namespace) read(n strictyaml.Node, more strictyaml.Keys) bool {
	proof := map[string]strictyaml.Node{} // by connection or by namespace
	keys := strictyaml.Keys{
		"connection": func(n strictyaml.Node) {
			proof["connection"] = n
			if holdsKey(n.Literal()) {
				n.Fail("holds a key: put the connection string into an environment variable and write ${EVENTHUB_CONNECTION_STRING}")
				return
			}
			n.Text(&ns.connection)
		},
		"namespace": func(n strictyaml.Node) {
			proof["namespace"] = n
			n.Text(&ns.host)
		},
		"credential": func(n strictyaml.Node) { n.OneOf(&ns.credential, "default") },
		"tls_ca_file": func(n strictyaml.Node) {
			var path string
			if !n.Text(&path) {
				return
			}
			var err error
			if ns.tls, err = tlsConfigWithRoots(path); err != nil {
				n.Fail("%w", err)
			}
		},
	}
	maps.Copy(keys, more)
	if !n.Object(keys) {
		return false
	}
	if len(proof) == 0 && ns.credential == "" && ns.tls == nil {
		return true
	}
	if len(proof) != 1 {
		return n.Fail("needs one of connection (write ${EVENTHUB_CONNECTION_STRING}) and namespace (with credential: default)")
	}
	at := proof["connection"]
	if ns.host != "" {
		at = proof["namespace"]
	}
	if (ns.host != "") != (ns.credential != "") {
		return at.Fail("goes without credential: that is for a namespace, which always needs it (credential: default)")
	}
	ns.at = &at
	return true
}

// readSourceHub reads source.eventhub.
func (p *Pipeline) readSourceHub(n strictyaml.Node) {
	p.places.source = n.Place()
	h := hub{}
	ok := h.read(n, strictyaml.Keys{
		"hub":                  func(n strictyaml.Node) { n.Text(&h.name) },
		"consumer_group":       func(n strictyaml.Node) { n.Text(&h.config.ConsumerGroup) },
		"checkpoint_namespace": func(n strictyaml.Node) { n.Text(&h.config.Namespace) },
	})
	if !ok {
		return
	}
	if h.at == nil {
		h.namespace = p.hub.namespace // what all stages share
	}
	if h.at == nil {
		n.Fail("needs one of connection (write ${EVENTHUB_CONNECTION_STRING}) and namespace (with credential: default)")
		return
	}
	h.config.TLSConfig = h.tls
	source, err := h.source()
	if err != nil {
		h.at.Fail("%w", err)
		return
	}
	p.Group, p.hub = source.Group(), h
}

// source makes the source, which connects when it is first used.
func (h *hub) source() (*eventhub.Source, error) {
	if h.connection != "" {
		return eventhub.New(h.connection, h.name, &h.config)
	}
	credential, err := azidentity.NewDefaultAzureCredential(nil)
	if err != nil {
		return nil, fmt.Errorf("default credential: %w", err)
	}
	return eventhub.NewWithCredential(h.host, h.name, credential, &h.config)
}

// tlsConfigWithRoots makes a TLS configuration that trusts the certificates in a PEM
// file besides the system's.
func tlsConfigWithRoots(path string) (*tls.Config, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("certificates: %w", err)
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("certificates: %s holds none in PEM", path)
	}
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, nil
}
