package main_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/sluice-go/sluice/cmd/sluice/internal/keda/externalscaler"
	"github.com/sluice-go/sluice/internal/selfsigned"
)

var kedaAt = regexp.MustCompile(`msg="external scaler for KEDA" at=(\S+)`)

// scaler is a client of `sluice autoscale keda`, as KEDA is one.
type scaler struct {
	testing.TB
	externalscaler.ExternalScalerClient
	conn *grpc.ClientConn
}

// serveKEDA starts the command, and returns it with a client.
func serveKEDA(t *testing.T, env []string, file string, transport credentials.TransportCredentials, flags ...string) (*process, *scaler) {
	t.Helper()
	p := start(t, "", env, append([]string{"autoscale", "keda", file, "--listen", "127.0.0.1:0"}, flags...)...)
	var address string
	await(t, "the address of the scaler", func() bool {
		m := kedaAt.FindStringSubmatch(p.err.String())
		if m != nil {
			address = m[1]
		}
		return m != nil
	})
	return p, dialKEDA(t, address, transport)
}

func dialKEDA(t *testing.T, address string, transport credentials.TransportCredentials) *scaler {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(transport))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &scaler{t, externalscaler.NewExternalScalerClient(conn), conn}
}

func scaledObject(metadata map[string]string) *externalscaler.ScaledObjectRef {
	all := map[string]string{"scalerAddress": "sluice-keda:6000"}
	for k, v := range metadata {
		all[k] = v
	}
	return &externalscaler.ScaledObjectRef{Name: "flights", Namespace: "default", ScalerMetadata: all}
}

// ask asks what KEDA asks in a round.
func (s *scaler) ask(metadata map[string]string) (target, value float64, active bool, err error) {
	ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
	defer cancel()
	ref := scaledObject(metadata)
	spec, err := s.GetMetricSpec(ctx, ref)
	if err != nil {
		return 0, 0, false, err
	}
	if len(spec.MetricSpecs) != 1 {
		s.Fatalf("the specification is %v", spec)
	}
	name := spec.MetricSpecs[0].MetricName
	values, err := s.GetMetrics(ctx, &externalscaler.GetMetricsRequest{ScaledObjectRef: ref, MetricName: name})
	if err != nil {
		return 0, 0, false, err
	}
	if len(values.MetricValues) != 1 || values.MetricValues[0].MetricName != name {
		s.Fatalf("the values of %s are %v", name, values)
	}
	is, err := s.IsActive(ctx, ref)
	return spec.MetricSpecs[0].TargetSizeFloat, values.MetricValues[0].MetricValueFloat, is.GetResult(), err
}

// expects waits for an answer: a measurement is used again for two seconds.
func (s *scaler) expects(metadata map[string]string, target, value float64, active bool) {
	s.Helper()
	await(s, "the value", func() bool {
		gotTarget, got, is, err := s.ask(metadata)
		return err == nil && gotTarget == target && got == value && is == active
	})
}

// lags writes a file of lags of the pipeline.
func lags(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "lags.yaml")
	write(t, path, text)
	return path
}

// TestKEDA: the lag that KEDA is given is that of the checkpoints and the hub, no more than
// what makes one instance for each partition, and what is wrong is an error, never 0.
func TestKEDA(t *testing.T) {
	t.Parallel()
	srv, connection := serve(t, 2)
	env := environment(connection, "sqlite:"+filepath.Join(t.TempDir(), "flights.db"))
	must(t, "", env, "send", "--hub", "flights", writeLines(t, flights20k(t)[:300]))
	file := lags(t, "flights:\n  lag: {pipeline: "+example(t)+"}\n  target: 1000\n")
	p, s := serveKEDA(t, env, file, insecure.NewCredentials())

	s.expects(nil, 1000, 300, true)
	s.expects(map[string]string{"resource": "flights", "targetLag": "100"}, 100, 200, true) // two partitions, two instances
	s.expects(map[string]string{"targetLag": "0.5", "activationLag": "299"}, 0.5, 1, true)
	s.expects(map[string]string{"activationLag": "300"}, 1000, 300, false)
	s.expects(map[string]string{"targetLagFromEnv": "200"}, 200, 300, true) // KEDA has read the variable
	for want, metadata := range map[string]map[string]string{
		`metadata "topic": unknown key: write resource, targetLag, activationLag`:        {"topic": "flights"},
		`metadata resource: "orders" is not in the file: write one of flights`:           {"resource": "orders"},
		`metadata targetLag: "many": write a number of events, 0 to 1000000000000000`:    {"targetLag": "many"},
		`metadata targetLag: "NaN": write a number of events`:                            {"targetLag": "NaN"},
		`metadata targetLag: must be above 0`:                                            {"targetLag": "0"},
		`metadata targetLag and targetLagFromEnv: write one of them`:                     {"targetLag": "1", "targetLagFromEnv": "2"},
		`metadata "orderFromEnv": unknown key: write resource, targetLag, activationLag`: {"orderFromEnv": "2"},
		`metadata activationLag: "-1": write a number of events, 0 to 1000000000000000`:  {"activationLag": "-1"},
	} {
		_, _, _, err := s.ask(metadata)
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v: %v, want … %s …", metadata, err, want)
		}
	}
	if _, err := s.GetMetrics(t.Context(), &externalscaler.GetMetricsRequest{ScaledObjectRef: scaledObject(nil), MetricName: "other"}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a metric of another name: %v", err)
	}
	if h, err := grpc_health_v1.NewHealthClient(s.conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err != nil || h.Status != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("health: %v, %v", h, err)
	}

	// The stream says at once that it is active, and then that it is not.
	stream, err := s.StreamIsActive(t.Context(), scaledObject(nil))
	if err != nil {
		t.Fatal(err)
	}
	if is, err := stream.Recv(); err != nil || !is.Result {
		t.Fatalf("the stream begins with %v, %v", is, err)
	}
	must(t, "", env, "run", example(t), "--until-caught-up")
	if is, err := stream.Recv(); err != nil || is.Result {
		t.Errorf("after the pipeline has caught up: %v, %v", is, err)
	}
	s.expects(nil, 1000, 0, false)
	must(t, "", env, "send", "--hub", "flights", writeLines(t, flights20k(t)[300:307]))
	s.expects(nil, 1000, 7, true)

	srv.Close()
	await(t, "an error", func() bool {
		_, value, _, err := s.ask(nil)
		if err == nil && value != 7 {
			t.Fatalf("the hub is down, and the lag is %v", value)
		}
		return status.Code(err) == codes.Unavailable && strings.Contains(err.Error(), "sluice: lag of flights: ")
	})
	p.stop()
	if log := p.err.String(); !strings.Contains(log, "measuring the lag failed") || !strings.Contains(log, "scaled_object=default/flights") {
		t.Errorf("the log has\n%s", log)
	}
}

// clientCertificate makes a certificate of a client, which is its own authority.
func clientCertificate(t *testing.T) (client tls.Certificate, authority []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, BasicConstraintsValid: true, IsCA: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// TestKEDAWithTLS: with --tls-client-ca only a client with a certificate is answered.
func TestKEDAWithTLS(t *testing.T) {
	t.Parallel()
	_, connection := serve(t, 1)
	env := environment(connection, "sqlite:"+filepath.Join(t.TempDir(), "flights.db"))
	server, err := selfsigned.New(&selfsigned.Config{CommonName: "keda", Hosts: []string{"127.0.0.1"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	client, authority := clientCertificate(t)
	other, _ := clientCertificate(t)
	dir := t.TempDir()
	for name, content := range map[string][]byte{"server.pem": server.CertPEM, "server.key": server.KeyPEM, "ca.pem": authority} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	roots := server.Pool()
	file := lags(t, "flights:\n  lag: {pipeline: "+example(t)+"}\n  target: 10\n")
	p, s := serveKEDA(t, env, file, credentials.NewTLS(&tls.Config{RootCAs: roots, Certificates: []tls.Certificate{client}}),
		"--tls-cert", filepath.Join(dir, "server.pem"), "--tls-key", filepath.Join(dir, "server.key"), "--tls-client-ca", filepath.Join(dir, "ca.pem"))
	s.expects(nil, 10, 0, false)
	address := kedaAt.FindStringSubmatch(p.err.String())[1]
	for who, transport := range map[string]credentials.TransportCredentials{
		"without TLS":              insecure.NewCredentials(),
		"without a certificate":    credentials.NewTLS(&tls.Config{RootCAs: roots}),
		"with another certificate": credentials.NewTLS(&tls.Config{RootCAs: roots, Certificates: []tls.Certificate{other}}),
	} {
		if _, _, _, err := dialKEDA(t, address, transport).ask(nil); status.Code(err) != codes.Unavailable {
			t.Errorf("a client %s: %v", who, err)
		}
	}
}

func TestKEDAMisuse(t *testing.T) {
	t.Parallel()
	pipeline := example(t)
	good := lags(t, "a:\n  lag: {pipeline: "+pipeline+"}\n  target: 1\n")
	for _, c := range []struct {
		code int
		want string
		args []string
	}{
		{2, "--listen is needed, such as --listen :6000", []string{good}},
		{2, "--tls-cert and --tls-key go together", []string{good, "--listen", ":0", "--tls-cert", "x"}},
		{2, "--tls-client-ca needs --tls-cert and --tls-key", []string{good, "--listen", ":0", "--tls-client-ca", "x"}},
		{1, "certificate nowhere.pem: ", []string{good, "--listen", ":0", "--tls-cert", "nowhere.pem", "--tls-key", "nowhere.key"}},
		{1, ":3:3: a.target: ", []string{lags(t, "a:\n  lag: {pipeline: x.yaml}\n  target: 0\n"), "--listen", ":0"}},
		{1, ":4:3: a.activation: ", []string{lags(t, "a:\n  lag: {pipeline: x.yaml}\n  target: 1\n  activation: -1\n"), "--listen", ":0"}},
		{1, ":1:1: a.target: is missing", []string{lags(t, "a:\n  lag: {pipeline: x.yaml}\n"), "--listen", ":0"}},
		{1, ":1:1: has no lag: write at least one", []string{lags(t, "{}\n"), "--listen", ":0"}},
		{1, "x.yaml", []string{lags(t, "a:\n  lag: {pipeline: x.yaml}\n  target: 1\n"), "--listen", ":0"}},
	} {
		code, _, err := invoke(t, "", nil, append([]string{"autoscale", "keda"}, c.args...)...)
		if code != c.code || !strings.Contains(err, c.want) || strings.Count(strings.TrimSpace(err), "\n") > 0 {
			t.Errorf("%v: exit %d: %s\nwant %d: … %s …", c.args, code, err, c.code, c.want)
		}
	}
}

// TestKEDAExample: the file of lags in examples/keda is valid.
func TestKEDAExample(t *testing.T) {
	t.Parallel()
	code, _, err := invoke(t, "../../examples/keda", nil, "autoscale", "keda", "lags.yaml", "--listen", "nowhere:x")
	if code != 1 || !strings.Contains(err, "EVENTHUB_CONNECTION_STRING") {
		t.Errorf("exit %d: %s, want that only the variables are missing", code, err)
	}
}
