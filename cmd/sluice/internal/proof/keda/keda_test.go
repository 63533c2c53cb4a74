// Package keda_test drives "sluice autoscale keda" with KEDA's own external scaler, the code
// that KEDA's operator runs, against the emulator. It is a module of its own, because KEDA
// depends on the clients of everything that it can scale by; scripts/soak runs it:
//
//	GOWORK=off go test -C cmd/sluice/internal/proof/keda .
package keda_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kedacore/keda/v2/pkg/scalers"
	"github.com/kedacore/keda/v2/pkg/scalers/scalersconfig"
	v2 "k8s.io/api/autoscaling/v2"
)

const patience = 2 * time.Minute

// binary is the program under test.
var binary string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "sluice-keda")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		binary = filepath.Join(dir, "sluice")
		build := exec.Command("go", "build", "-o", binary, "./cmd/sluice")
		build.Dir = "../../../../.."
		build.Env = append(os.Environ(), "GOWORK=") // the workspace of the repository
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

// hub is an emulated hub with a pipeline that reads it.
type hub struct {
	*testing.T
	dir  string
	env  []string
	stop func()
}

// start starts a command of the program, and returns the rest of the first line of one of
// its outputs that contains a text, and a function that ends the process.
func start(t *testing.T, dir string, env []string, mark string, args ...string) (rest string, stop func()) {
	t.Helper()
	cmd := exec.Command(binary, args...)
	cmd.Dir, cmd.Env = dir, env
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = write, write
	err = cmd.Start()
	write.Close()
	if err != nil {
		t.Fatal(err)
	}
	stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		read.Close()
	}
	t.Cleanup(stop)
	lines := bufio.NewReader(read)
	var before strings.Builder
	for {
		line, err := lines.ReadString('\n')
		before.WriteString(line)
		if _, rest, found := strings.Cut(line, mark); found {
			go io.Copy(io.Discard, lines) //nolint:errcheck // ends with the process
			return strings.TrimSpace(rest), stop
		}
		if err != nil {
			t.Fatalf("sluice %s: %v\n%s", strings.Join(args, " "), err, &before)
		}
	}
}

func emulate(t *testing.T, partitions int) *hub {
	t.Helper()
	dir := t.TempDir()
	connection, stop := start(t, dir, nil, "ready ", "emulator", "serve", "--listen", "127.0.0.1:0", "--hub", fmt.Sprintf("orders=%d", partitions))
	h := &hub{T: t, dir: dir, stop: stop, env: []string{"EVENTHUB_CONNECTION_STRING=" + connection, "DATABASE_URL=sqlite:orders.db"}}
	h.write("pipeline.yaml", `
source:
  eventhub: {connection: "${EVENTHUB_CONNECTION_STRING}", hub: orders}
  start: earliest
partitions: all
database: ${DATABASE_URL}
target:
  insert:
    table: orders
    create: true
    columns: {hub_partition: partition, sequence_number: sequence, id: {from: body.id, type: integer}}
`)
	h.write("lags.yaml", "orders:\n  lag: {pipeline: pipeline.yaml}\n  target: 1000\n")
	return h
}

func (h *hub) write(name, text string) string {
	h.Helper()
	path := filepath.Join(h.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		h.Fatal(err)
	}
	return path
}

// sluice runs a command of the program to its end.
func (h *hub) sluice(args ...string) {
	h.Helper()
	cmd := exec.Command(binary, args...)
	cmd.Dir, cmd.Env = h.dir, h.env
	if out, err := cmd.CombinedOutput(); err != nil {
		h.Fatalf("sluice %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func (h *hub) send(n int) {
	h.Helper()
	var lines bytes.Buffer
	for i := range n {
		fmt.Fprintf(&lines, "{\"id\": %d}\n", i)
	}
	h.sluice("send", "--hub", "orders", h.write("orders.ndjson", lines.String()))
}

// serve starts the external scaler, and returns its address.
func (h *hub) serve(flags ...string) string {
	h.Helper()
	rest, _ := start(h.T, h.dir, h.env, `msg="external scaler for KEDA" at=`, append([]string{"autoscale", "keda", "lags.yaml", "--listen", "127.0.0.1:0"}, flags...)...)
	address, _, _ := strings.Cut(rest, " ")
	return address
}

// scaledObject is what KEDA knows of a ScaledObject with this trigger, the third of its
// triggers. Pairs are a key and a value of its metadata.
func scaledObject(address string, pairs ...string) *scalersconfig.ScalerConfig {
	metadata := map[string]string{"scalerAddress": address}
	for i := 0; i < len(pairs); i += 2 {
		metadata[pairs[i]] = pairs[i+1]
	}
	return &scalersconfig.ScalerConfig{
		ScalableObjectName: "orders", ScalableObjectNamespace: "shop", ScalableObjectType: "ScaledObject",
		TriggerIndex: 2, TriggerMetadata: metadata, MetricType: v2.AverageValueMetricType,
	}
}

func external(t *testing.T, config *scalersconfig.ScalerConfig) scalers.Scaler {
	t.Helper()
	s, err := scalers.NewExternalScaler(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

const metric = "s2-sluice-lag-orders"

// measure asks for the value and the activity, as KEDA does in each round.
func measure(t *testing.T, s scalers.Scaler) (value float64, active bool, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	values, active, err := s.GetMetricsAndActivity(ctx, metric)
	if err != nil {
		return 0, active, err
	}
	if len(values) != 1 || values[0].MetricName != metric {
		t.Fatalf("the values are %+v", values)
	}
	return values[0].Value.AsApproximateFloat64(), active, nil
}

// await repeats a question: a measurement is used again for two seconds.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience, errors.New("in vain"))
	defer cancel()
	for tick := time.NewTicker(50 * time.Millisecond); !ok(); {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waited for %s: %v", what, context.Cause(ctx))
		}
	}
}

func awaitValue(t *testing.T, s scalers.Scaler, value float64, active bool) {
	t.Helper()
	await(t, fmt.Sprintf("the value %v, active %v", value, active), func() bool {
		got, is, err := measure(t, s)
		return err == nil && got == value && is == active
	})
}

// KEDA makes of the answers what the HPA needs, and of wrong metadata and outages errors.
func TestExternalScaler(t *testing.T) {
	t.Parallel()
	h := emulate(t, 2)
	h.send(300)
	address := h.serve()
	s := external(t, scaledObject(address))

	specs := s.GetMetricSpecForScaling(t.Context())
	if len(specs) != 1 || specs[0].Type != v2.ExternalMetricSourceType || specs[0].External.Metric.Name != metric ||
		specs[0].External.Target.Type != v2.AverageValueMetricType || specs[0].External.Target.AverageValue.Value() != 1000 {
		t.Fatalf("the specification is %+v", specs)
	}
	awaitValue(t, s, 300, true)
	fractions := external(t, scaledObject(address, "resource", "orders", "targetLag", "0.5", "activationLag", "300"))
	if specs := fractions.GetMetricSpecForScaling(t.Context()); len(specs) != 1 || specs[0].External.Target.AverageValue.MilliValue() != 500 {
		t.Errorf("with targetLag 0.5 the specification is %+v", specs)
	}
	awaitValue(t, fractions, 1, false) // two partitions, two instances
	config := scaledObject(address, "targetLagFromEnv", "TARGET")
	config.ResolvedEnv = map[string]string{"TARGET": "100"}
	awaitValue(t, external(t, config), 200, true)

	for want, pairs := range map[string][]string{
		`metadata "topic": unknown key: write resource, targetLag, activationLag`:     {"topic", "orders"},
		`metadata resource: "flights" is not in the file: write one of orders`:        {"resource", "flights"},
		`metadata targetLag: "many": write a number of events, 0 to 1000000000000000`: {"targetLag", "many"},
	} {
		wrong := external(t, scaledObject(address, pairs...))
		if specs := wrong.GetMetricSpecForScaling(t.Context()); len(specs) > 0 {
			t.Errorf("%v: the specification is %+v", pairs, specs)
		}
		if value, _, err := measure(t, wrong); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, %v, want … %s …", pairs, value, err, want)
		}
	}

	h.sluice("run", "pipeline.yaml", "--until-caught-up")
	awaitValue(t, s, 0, false)
	h.send(7)
	awaitValue(t, s, 7, true)
	h.stop()
	await(t, "an error", func() bool {
		value, active, err := measure(t, s)
		if err == nil && (value != 7 || !active) {
			t.Fatalf("the hub is down, and the answer is %v, %v", value, active)
		}
		return err != nil && strings.Contains(err.Error(), "sluice: lag of orders: ")
	})
}

// KEDA's push scaler learns at once that there is something to do, and later that there is
// nothing, without asking.
func TestExternalPushScaler(t *testing.T) {
	t.Parallel()
	h := emulate(t, 1)
	h.send(10)
	s, err := scalers.NewExternalPushScaler(scaledObject(h.serve()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	active := make(chan bool)
	go s.Run(ctx, active)
	t.Cleanup(func() {
		cancel()
		for range active { // Run closes it
		}
		_ = s.Close(context.Background())
	})
	if is, open := <-active; !is || !open {
		t.Fatalf("the push scaler begins with %v, %v", is, open)
	}
	// The target does not change while the scaler runs: KEDA ends that stream for good.
	if specs, open := <-s.(scalers.MetricSpecStreamer).MetricSpecChan(); open {
		t.Errorf("a specification was pushed: %+v", specs)
	}
	h.sluice("run", "pipeline.yaml", "--until-caught-up")
	if is, open := <-active; is || !open {
		t.Fatalf("after the pipeline has caught up: %v, %v", is, open)
	}
	h.send(1)
	if is, open := <-active; !is || !open {
		t.Fatalf("after an event: %v, %v", is, open)
	}
	awaitValue(t, s, 1, true)
}

// certificate makes a certificate for 127.0.0.1, of a server and a client, which is its own
// authority.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}))
}

// KEDA trusts the certificate by caCert of a TriggerAuthentication, and shows its own by
// tlsClientCert and tlsClientKey.
func TestTLS(t *testing.T) {
	t.Parallel()
	h := emulate(t, 1)
	h.send(3)
	server, serverKey := certificate(t)
	client, clientKey := certificate(t)
	other, otherKey := certificate(t)
	files := []string{"--tls-cert", h.write("server.pem", server), "--tls-key", h.write("server.key", serverKey)}
	oneWay, mutual := h.serve(files...), h.serve(append(files, "--tls-client-ca", h.write("clients.pem", client))...)
	for _, c := range []struct {
		name, address string
		auth          map[string]string
		wrong         string
	}{
		{"caCert", oneWay, map[string]string{"caCert": server}, ""},
		{"without TLS", oneWay, nil, "error reading server preface"},
		{"another caCert", oneWay, map[string]string{"caCert": other}, "certificate signed by unknown authority"},
		{"a client's certificate", mutual, map[string]string{"caCert": server, "tlsClientCert": client, "tlsClientKey": clientKey}, ""},
		{"no client's certificate", mutual, map[string]string{"caCert": server}, "certificate required"},
		{"another client's certificate", mutual, map[string]string{"caCert": server, "tlsClientCert": other, "tlsClientKey": otherKey}, "tls: "},
	} {
		config := scaledObject(c.address)
		config.AuthParams = c.auth
		s := external(t, config)
		value, active, err := measure(t, s)
		switch {
		case c.wrong == "" && (err != nil || value != 3 || !active):
			t.Errorf("%s: %v, %v, %v", c.name, value, active, err)
		case c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)):
			t.Errorf("%s: %v, %v, want an error with %q", c.name, value, err, c.wrong)
		}
	}
}
