package pipeline

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/sluice-go/sluice/eventhub"
	"github.com/sluice-go/sluice/internal/strictyaml"
)

// hub is what the file says about the event hub.
type hub struct {
	connection string // or else
	namespace  string // with
	credential string
	name       string
	config     eventhub.Config
}

// readHub reads source.eventhub.
func (p *Pipeline) readHub(n strictyaml.Node) {
	p.at.source = n.Place()
	var h hub
	proof := map[string]strictyaml.Node{} // by connection or by namespace
	ok := n.Object(strictyaml.Keys{
		"connection": func(n strictyaml.Node) {
			proof["connection"] = n
			if holdsKey(n.Literal()) {
				n.Fail("holds a key: put the connection string into an environment variable and write ${EVENTHUB_CONNECTION_STRING}")
				return
			}
			n.Text(&h.connection)
		},
		"namespace": func(n strictyaml.Node) {
			proof["namespace"] = n
			n.Text(&h.namespace)
		},
		"credential":           func(n strictyaml.Node) { n.OneOf(&h.credential, "default") },
		"hub":                  func(n strictyaml.Node) { n.Text(&h.name) },
		"consumer_group":       func(n strictyaml.Node) { n.Text(&h.config.ConsumerGroup) },
		"checkpoint_namespace": func(n strictyaml.Node) { n.Text(&h.config.Namespace) },
		"tls_ca_file": func(n strictyaml.Node) {
			var path string
			if !n.Text(&path) {
				return
			}
			var err error
			if h.config.TLSConfig, err = trusting(path); err != nil {
				n.Fail("%w", err)
			}
		},
	})
	if !ok {
		return
	}
	if len(proof) != 1 {
		n.Fail("needs one of connection (write ${EVENTHUB_CONNECTION_STRING}) and namespace (with credential: default)")
		return
	}
	at := proof["connection"]
	if h.namespace != "" {
		at = proof["namespace"]
	}
	if (h.namespace != "") != (h.credential != "") {
		at.Fail("goes without credential: that is for a namespace, which always needs it (credential: default)")
		return
	}
	source, err := h.source()
	if err != nil {
		at.Fail("%w", err)
		return
	}
	p.Group, p.newSource = source.Group(), h.source
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
	return eventhub.NewWithCredential(h.namespace, h.name, credential, &h.config)
}

// trusting makes a TLS configuration that trusts the certificates in a PEM
// file besides the system's.
func trusting(path string) (*tls.Config, error) {
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
