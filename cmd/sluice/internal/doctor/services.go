package doctor

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"github.com/sluice-go/sluice/blobstore"
	"github.com/sluice-go/sluice/cmd/sluice/internal/verify"
	"github.com/sluice-go/sluice/internal/finalanswer"
	"github.com/sluice-go/sluice/pipeline"
)

const (
	// skewFailed is from where on Azure refuses signatures and tokens: they are valid for some minutes
	// around the time of the sender.
	skewFailed = 5 * time.Minute
	// certificateSoon is how long before its end a certificate is reported.
	certificateSoon = 14 * 24 * time.Hour
)

// checkSystem asks what the credentials may do, and for the time.
func (s *stage) checkSystem(ctx context.Context, system verify.System) []Finding {
	if o, ok := verify.Probe(ctx, system); ok {
		state := map[verify.Verdict]State{verify.Held: OK, verify.Tolerated: Warning}
		return []Finding{{Check: "endpoint", State: cmp.Or(state[o.Verdict], Failed), Found: s.failure(ctx, system.Name()+": "+o.Found), Next: o.Next}}
	}
	var all []Finding
	var granted []string
	for i, r := range verify.PipelineRights(ctx, system) {
		switch {
		case r.Granted:
			granted = append(granted, r.Name)
		case i == 0 && r.Name == "connect to the database", r.Unreachable: // the part's own check says it
			return all
		default:
			all = append(all, found(Failed, "", "%s: may not %s: %s", system.Name(), r.Name, r.Found).next("%s", r.Next))
		}
	}
	if len(all) == 0 {
		all = append(all, found(OK, "", "%s: may %s", system.Name(), strings.Join(granted, "; ")))
	}
	difference, uncertain, ok, err := verify.ClockDifference(ctx, system, s.Now)
	switch {
	case err != nil:
		all = append(all, found(Warning, "clock", "%s: the time is not known: %v", system.Name(), err).next("correct what the error names"))
	case ok:
		all = append(all, s.clock(system.Name(), difference, uncertain))
	}
	return all
}

// clock judges the difference of a clock. A lease's owner and its store count durations, so leases stand
// a difference. Times of one that the other reads do not: starts such as "24h ago", the time of a
// redrive, signatures and tokens.
func (s *stage) clock(of string, difference, uncertain time.Duration) Finding {
	const name, next = "clock", "check the time synchronisation (NTP) of this machine, then of the server"
	sure := difference.Abs() - uncertain
	shown := func(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }
	switch {
	case sure > skewFailed:
		return found(Failed, name, "%s: its clock differs by %v from this machine's: signatures and tokens are refused", of, shown(difference)).next("%s", next)
	case sure > s.LeaseFor()/3:
		return found(Warning, name, "%s: its clock differs by %v from this machine's, more than a third of a lease (%v): ages of leases and waits are shown wrong, and times such as start are read wrong", of, shown(difference), s.LeaseFor()).next("%s", next)
	}
	return found(OK, name, "%s: its clock differs by %v ± %v from this machine's", of, shown(difference), shown(uncertain))
}

// endpoint is an address whose certificate can be seen without a credential.
type endpoint struct {
	host    string // with the port
	https   bool   // it answers HTTPS, so its answers have the time
	quietly bool   // it need not answer
}

// endpoints are the addresses of the pipeline that are connected to with TLS from the beginning.
func (s *stage) endpoints() (list []endpoint) {
	c := s.connect
	if h := c.Hub; h != nil && (h.Config.Proxy == nil) {
		list = append(list, hubEndpoints(cmp.Or(h.Host, h.Connection), h.Config.OverWebSocket)...)
	}
	if k := c.Kafka; k != nil && k.Encrypted {
		const most = 10
		for _, broker := range k.Brokers[:min(most, len(k.Brokers))] {
			list = append(list, endpoint{host: withPort(broker, "9093")})
		}
	}
	web := func(text string) {
		if u, err := url.Parse(text); err == nil && u.Scheme == "https" && u.Host != "" {
			list = append(list, endpoint{host: withPort(u.Host, "443"), https: true})
		}
	}
	for _, b := range []*pipeline.BlobConnection{c.Blob, c.ProgressBlobs} {
		switch {
		case b == nil:
		case b.Entra: // the container is a URL already
			web(b.Container)
		default:
			if client, err := blobstore.Connect(b.Container, &blobstore.Config{ConnectionString: b.Connection}); err == nil {
				web(client.URL())
			}
		}
	}
	if c.Cosmos != nil {
		web(c.Cosmos.Endpoint)
	}
	for _, h := range c.HTTP {
		web(h.URL)
	}
	return list
}

// hubEndpoints are those of a namespace, named by its host or a connection string. The time is asked for
// over HTTPS, which a network that only admits AMQP does not let through.
func hubEndpoints(at string, websocket bool) []endpoint {
	if properties, err := azeventhubs.ParseConnectionString(at); err == nil {
		if properties.Emulator {
			return nil
		}
		at = properties.FullyQualifiedNamespace
	}
	web := endpoint{host: withPort(at, "443"), https: true, quietly: true}
	if websocket {
		return []endpoint{web}
	}
	return []endpoint{{host: withPort(at, "5671")}, web}
}

func withPort(host, port string) string {
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	return net.JoinHostPort(host, port)
}

// checkEndpoint looks at the certificate of an address and at the time in its answer. No credential is
// sent, so the certificate need not be trusted here: the part's own check refuses one that is not.
func (s *stage) checkEndpoint(ctx context.Context, at endpoint) []Finding {
	var leaf *x509.Certificate
	host, _, _ := net.SplitHostPort(at.host)
	config := &tls.Config{ServerName: host, InsecureSkipVerify: true, MinVersion: tls.VersionTLS12, //nolint:gosec // see above
		VerifyPeerCertificate: func(raw [][]byte, _ [][]*x509.Certificate) (err error) {
			if len(raw) > 0 {
				leaf, err = x509.ParseCertificate(raw[0])
			}
			return err
		}}
	var all []Finding
	if at.https {
		transport := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: config, DisableKeepAlives: true}
		client := &http.Client{Transport: finalanswer.Transport(transport), CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		all = s.date(ctx, client, at.host)
	} else if conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", at.host); err == nil {
		_ = conn.Close() // it was only looked at
	}
	if leaf == nil || at.quietly {
		return all // the part's own check reports what does not answer
	}
	return append([]Finding{s.certificate(at.host, leaf)}, all...)
}

// date compares the time in the answer to a request without effect.
func (s *stage) date(ctx context.Context, client *http.Client, host string) []Finding {
	request, err := http.NewRequestWithContext(ctx, http.MethodHead, "https://"+host+"/", http.NoBody)
	if err != nil {
		return nil
	}
	asked := s.Now()
	answer, err := client.Do(request)
	if err != nil {
		return nil
	}
	_ = answer.Body.Close()
	server, err := http.ParseTime(answer.Header.Get("Date"))
	if err != nil {
		return nil
	}
	took := s.Now().Sub(asked)
	difference := server.Add(time.Second / 2).Sub(asked.Add(took / 2)) // Date has whole seconds
	return []Finding{s.clock(host, difference, took/2+time.Second/2)}
}

func (s *stage) certificate(host string, leaf *x509.Certificate) Finding {
	const name = "certificate"
	until, left := leaf.NotAfter.UTC().Format(time.RFC3339), leaf.NotAfter.Sub(s.Now())
	switch {
	case left <= 0:
		return found(Failed, name, "%s: expired at %s", host, until).next("renew the server's certificate; if it is valid, correct this machine's clock")
	case s.Now().Before(leaf.NotBefore):
		return found(Failed, name, "%s: valid from %s only", host, leaf.NotBefore.UTC().Format(time.RFC3339)).next("correct this machine's clock, or the server's certificate")
	case left < certificateSoon:
		return found(Warning, name, "%s: ends at %s, in %d days", host, until, int(left.Hours()/24)).next("renew the server's certificate")
	}
	return found(OK, name, "%s: valid until %s", host, until)
}
