package pipeline

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/eventhub"
	"github.com/sluice-go/sluice/internal/config/strictyaml"
	"github.com/sluice-go/sluice/internal/websocketdial"
)

// hub is an event hub in the file.
type hub struct {
	namespace
	name     string
	config   eventhub.Config // as a source
	progress *progressBlobs  // as a source: where its checkpoints are mirrored; nil: nowhere
	batch    batchLimits     // as a target
}

// namespace is a namespace of hubs, with the credentials for it.
type namespace struct {
	connection string // or
	host       string // with
	credential string
	tls        *tls.Config
	websocket  bool
	proxy      *url.URL
	node       *strictyaml.Node // the key connection or namespace; nil: neither is given
}

// read reads the namespace, and more keys of the same mapping.
func (ns *namespace) read(n strictyaml.Node, more strictyaml.Keys) bool {
	given := map[string]strictyaml.Node{} // connection and namespace
	keys := strictyaml.Keys{
		"connection": func(n strictyaml.Node) {
			given["connection"] = n
			if holdsKey(n.Literal()) {
				n.Fail("holds a key: put the connection string into an environment variable and write ${EVENTHUB_CONNECTION_STRING}")
				return
			}
			n.Text(&ns.connection)
		},
		"namespace": func(n strictyaml.Node) {
			given["namespace"] = n
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
	keys["websocket"] = func(n strictyaml.Node) { n.Bool(&ns.websocket) }
	keys["proxy"] = func(n strictyaml.Node) {
		if holdsPassword(n.Literal()) {
			n.Fail("holds a password: put it into an environment variable and write ${PROXY}, or http://user:${PROXY_PASSWORD}@proxy.example.com:3128")
			return
		}
		var text string
		if !n.Text(&text) {
			return
		}
		var err error
		if ns.proxy, err = websocketdial.ParseProxy(text); err != nil {
			n.Fail("%w", err)
		}
	}
	maps.Copy(keys, more)
	if !n.Object(keys) {
		return false
	}
	if ns.proxy != nil && !ns.websocket {
		return n.Fail("proxy goes with websocket: true only: AMQP's own port does not go through a proxy")
	}
	if len(given) == 0 && ns.credential == "" && ns.tls == nil && !ns.websocket {
		return true
	}
	if len(given) != 1 {
		return n.Fail("needs one of connection (write ${EVENTHUB_CONNECTION_STRING}) and namespace (with credential: default)")
	}
	at := given["connection"]
	if ns.host != "" {
		at = given["namespace"]
	}
	if (ns.host != "") != (ns.credential != "") {
		return at.Fail("credential goes with namespace only, and a namespace always needs it (credential: default)")
	}
	ns.node = &at
	return true
}

// dial connects a sender to the address that its client library asks for.
func (ns *namespace) dial(ctx context.Context, address string) (net.Conn, error) {
	if plain, err := azeventhubs.ParseConnectionString(ns.connection); err == nil && plain.Emulator {
		address = strings.Replace(address, "wss://", "ws://", 1)
	}
	return websocketdial.Dial(ctx, address, ns.tls, ns.proxy)
}

// Limits of logs.
const (
	maxHubPrefetch = 5000 // events, the limit of package eventhub
	minTimeout     = time.Second
	maxTimeout     = 10 * time.Minute
)

// readSourceHub reads source.eventhub.
func (r *reader) readSourceHub(n strictyaml.Node) {
	r.places.source = n.Place()
	h := hub{}
	ok := h.read(n, strictyaml.Keys{
		"hubs": func(n strictyaml.Node) {
			h.name = r.logs.read(n, func(n strictyaml.Node, to *string) { n.Text(to) })
		},
		"hub":                  func(n strictyaml.Node) { n.Text(&h.name) },
		"consumer_group":       func(n strictyaml.Node) { n.Text(&h.config.ConsumerGroup) },
		"checkpoint_namespace": func(n strictyaml.Node) { n.Text(&h.config.Namespace) },
		"prefetch": func(n strictyaml.Node) {
			n.Object(strictyaml.Keys{
				"events": func(n strictyaml.Node) { n.Int(&h.config.Prefetch, 1, maxHubPrefetch) },
				"bytes":  func(n strictyaml.Node) { n.SizeIn(&h.config.PrefetchBytes, minPrefetch, maxPrefetch) },
			})
		},
		"receiver": func(n strictyaml.Node) {
			n.OneOf((*string)(&h.config.Receiver), string(eventhub.OwnReceiver), string(eventhub.SDKReceiver))
		},
		"undecodable": func(n strictyaml.Node) {
			n.OneOf((*string)(&h.config.Undecodable), string(eventhub.HaltUndecodable), string(eventhub.ParkUndecodable))
		},
		"timeout":        func(n strictyaml.Node) { n.DurationIn(&h.config.Timeout, minTimeout, maxTimeout) },
		"progress_blobs": func(n strictyaml.Node) { r.readProgressBlobs(n, &h) },
	})
	if !ok {
		return
	}
	if n.Has("hub") && n.Has("hubs") {
		n.Fail("needs one of hub and hubs")
		return
	}
	if h.node == nil {
		h.namespace = r.shared.namespace
	}
	if h.node == nil {
		n.Fail("needs one of connection (write ${EVENTHUB_CONNECTION_STRING}) and namespace (with credential: default)")
		return
	}
	if _, err := h.source(""); err != nil {
		h.node.Fail("%w", err)
		return
	}
	r.shared.namespace = h.namespace // the default of the target
	r.setSource(&h)
}

// source returns the source, which connects when it is first used.
func (h *hub) source(consumerGroup string) (*eventhub.Source, error) {
	config := h.config
	config.TLSConfig, config.OverWebSocket, config.Proxy = h.tls, h.websocket, h.proxy
	config.ConsumerGroup = cmp.Or(consumerGroup, config.ConsumerGroup)
	if h.connection != "" {
		return eventhub.New(h.connection, h.name, &config)
	}
	credential, err := azidentity.NewDefaultAzureCredential(nil)
	if err != nil {
		return nil, fmt.Errorf("default credential: %w", err)
	}
	return eventhub.NewWithCredential(h.host, h.name, credential, &config)
}

func (h *hub) system() System { return EventHubs }

// group implements [log]. The hub was read without an error.
func (h *hub) group() sluice.Group {
	source, err := h.source("")
	if err != nil {
		return sluice.Group{}
	}
	return source.Group()
}

// open implements [log].
func (h *hub) open(consumerGroup string) (Source, error) {
	source, err := h.source(consumerGroup)
	if err != nil {
		return nil, err
	}
	return source, nil
}

// address returns the hub's address, whatever namespace its checkpoints have. It is
// in lower case: Event Hubs' names have no case.
func (h *hub) address() address {
	plain := hub{namespace: h.namespace, name: h.name}
	g := plain.group()
	return address{EventHubs, []string{strings.ToLower(g.Namespace)}, strings.ToLower(g.Topic)}
}

// sdkGroup returns the names by which the Azure SDKs' processors keep checkpoints of a consumer
// group of the hub, whatever namespace Sluice's have.
func (h *hub) sdkGroup(consumerGroup string) sluice.Group {
	g := sluice.Group{Namespace: h.host, Topic: h.name, Name: consumerGroup}
	if properties, err := azeventhubs.ParseConnectionString(h.connection); h.connection != "" && err == nil {
		g.Namespace = properties.FullyQualifiedNamespace
		if properties.EntityPath != nil {
			g.Topic = *properties.EntityPath
		}
	}
	return g
}

// setConnections implements [log].
func (h *hub) setConnections(c *Connections) {
	c.Hub = &HubConnection{h.connection, h.host, h.name, h.config}
	if h.progress != nil {
		c.ProgressBlobs = h.progress.address()
	}
}

// tlsConfigWithRoots returns a TLS configuration that trusts the certificates of a
// PEM file and the system's.
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
		return nil, fmt.Errorf("certificates: %s has none in PEM", path)
	}
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, nil
}
