package check

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"github.com/sluice-go/sluice/blobstore"
	"github.com/sluice-go/sluice/internal/finalanswer"
	"github.com/sluice-go/sluice/pipeline"
)

const (
	// skewFailed is from where on Azure refuses signatures and tokens: they are valid for some
	// minutes around the time of the sender.
	skewFailed = 5 * time.Minute
	// certificateSoon is how long before its end a certificate is reported.
	certificateSoon = 14 * 24 * time.Hour
)

// checkSystem asks what the credentials may do, and for the time. The check of a pipeline's part
// reports a system that does not answer, or refuses the connection.
func (s *stage) checkSystem(ctx context.Context, system System) List {
	if endpoint, ok := system.(*httpSystem); ok {
		f := endpoint.checkEmpty(ctx)
		if f.State == Undecided {
			f.State = Failed
		}
		f.Check, f.Thing, f.Found = "endpoint", system.Name(), s.failure(ctx, f.Found)
		return List{f}
	}
	rights := pipelineRights(ctx, system)
	if s.Pipeline != nil && (slices.ContainsFunc(rights, func(r Right) bool { return r.Unreachable }) || len(rights) > 0 && !rights[0].Granted && rights[0].Name == "connect to the database") {
		return nil
	}
	all := rightFindings(system.Name(), rights, Failed)
	db, ok := system.(*databaseSystem)
	if !ok || db.shown == nil || all.Count(OK) == 0 && s.Pipeline == nil {
		return all
	}
	asked := s.Now()
	server, err := db.shown(ctx)
	if err != nil {
		return append(all, found(Warning, "clock", "the time is not known: %v", err).next("correct what the error names").subject(system.Name()))
	}
	difference, uncertain := clockDifference(server, asked, s.Now())
	return append(all, s.clock(system.Name(), difference, uncertain))
}

// pipelineRights tests the rights that a pipeline needs of a system. Those that only a [Runner]
// needs are left out.
func pipelineRights(ctx context.Context, s System) []Right {
	if db, ok := s.(*databaseSystem); ok {
		return db.rights(ctx, false)
	}
	rights := s.Rights(ctx)
	if b, ok := s.(*blobSystem); ok && b.mirror { // it deletes nothing
		rights = slices.DeleteFunc(rights, func(r Right) bool { return r.Name == "delete blobs" })
	}
	return rights
}

// clock judges the difference of a clock. A lease's owner and its store count durations, so leases
// stand a difference. Times of one that the other reads do not: starts such as "24h ago", the time
// of a redrive, signatures and tokens.
func (s *stage) clock(of string, difference, uncertain time.Duration) Finding {
	const next = "check the time synchronisation (NTP) of this machine, then of the server"
	leaseFor := 30 * time.Second
	if s.Pipeline != nil {
		leaseFor = s.LeaseFor()
	}
	sure := difference.Abs() - uncertain
	shown := difference.Round(10 * time.Millisecond)
	f := found(OK, "clock", "differs by %v ± %v from this machine's", shown, uncertain.Round(10*time.Millisecond))
	switch {
	case sure > skewFailed:
		f = found(Failed, "clock", "differs by %v from this machine's: signatures and tokens are refused", shown).next(next)
	case sure > leaseFor/3:
		f = found(Warning, "clock", "differs by %v from this machine's, more than a third of a lease (%v): ages of leases and waits are shown wrong, and times such as start are read wrong", shown, leaseFor).next(next)
	}
	return f.subject(of)
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

// hubEndpoints are those of a namespace, named by its host or a connection string. The time is
// asked for over HTTPS, which a network that only admits AMQP does not let through.
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

// checkEndpoint looks at the certificate of an address and at the time in its answer. No credential
// is sent, so the certificate need not be trusted here: the part's own check refuses one that is
// not.
func (s *stage) checkEndpoint(ctx context.Context, at endpoint) List {
	var leaf *x509.Certificate
	host, _, _ := net.SplitHostPort(at.host)
	config := &tls.Config{ServerName: host, InsecureSkipVerify: true, MinVersion: tls.VersionTLS12, //nolint:gosec // see above
		VerifyPeerCertificate: func(raw [][]byte, _ [][]*x509.Certificate) (err error) {
			if len(raw) > 0 {
				leaf, err = x509.ParseCertificate(raw[0])
			}
			return err
		}}
	var all List
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
	return append(List{s.certificate(at.host, leaf)}, all...)
}

// date compares the time in the answer to a request without effect.
func (s *stage) date(ctx context.Context, client *http.Client, host string) List {
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
	return List{s.clock(host, difference, took/2+time.Second/2)}
}

func (s *stage) certificate(host string, leaf *x509.Certificate) Finding {
	until, left := leaf.NotAfter.UTC().Format(time.RFC3339), leaf.NotAfter.Sub(s.Now())
	f := found(OK, "", "valid until %s", until)
	switch {
	case left <= 0:
		f = found(Failed, "", "expired at %s", until).next("renew the server's certificate; if it is valid, correct this machine's clock")
	case s.Now().Before(leaf.NotBefore):
		f = found(Failed, "", "valid from %s only", leaf.NotBefore.UTC().Format(time.RFC3339)).next("correct this machine's clock, or the server's certificate")
	case left < certificateSoon:
		f = found(Warning, "", "ends at %s, in %d days", until, int(left.Hours()/24)).next("renew the server's certificate")
	}
	return f.subject(host)
}
