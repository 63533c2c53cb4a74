package emulator_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/sluice-go/sluice/emulator"
)

func startCosmos(t *testing.T, cfg *emulator.CosmosConfig, containers ...emulator.CosmosContainer) *emulator.Cosmos {
	t.Helper()
	srv, err := emulator.StartCosmos(containers, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Errorf("close the account: %v", err)
		}
	})
	return srv
}

func cosmosContainer(t *testing.T, srv *emulator.Cosmos, options policy.ClientOptions) *azcosmos.ContainerClient {
	t.Helper()
	options.Retry.MaxRetries = -1
	client, err := azcosmos.NewClientFromConnectionString(srv.ConnectionString(), &azcosmos.ClientOptions{ClientOptions: options})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.NewContainer("db", "docs")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var cosmosDocs = emulator.CosmosContainer{Database: "db", Name: "docs", KeyPaths: []string{"/key"}, Partitions: 2}

// oneConnection is an HTTP client's transport with a single connection. The standard one gives its
// connection up if an answer comes more than 50 ms before it has noted that the request is written.
type oneConnection struct {
	net.Conn
	answers *bufio.Reader
	mu      sync.Mutex // the SDK may ask for the account meanwhile
}

func (c *oneConnection) RoundTrip(req *http.Request) (*http.Response, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := req.Write(c); err != nil {
		return nil, err
	}
	res, err := http.ReadResponse(c.answers, req)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(res.Body)
	res.Body = io.NopCloser(bytes.NewReader(body))
	return res, err
}

// Over TLS a client that trusts the certificate works, with one handshake for all it does in turn.
func TestCosmosTLS(t *testing.T) {
	t.Parallel()
	srv := startCosmos(t, &emulator.CosmosConfig{TLS: true}, cosmosDocs)
	conn, err := tls.Dial("tcp", srv.Addr(), &tls.Config{RootCAs: srv.CertPool(), MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c := cosmosContainer(t, srv, policy.ClientOptions{Transport: &http.Client{Transport: &oneConnection{Conn: conn, answers: bufio.NewReader(conn)}}})
	for i := range 20 {
		if _, err := c.UpsertItem(t.Context(), azcosmos.NewPartitionKeyString("a"), fmt.Appendf(nil, `{"id": "%d", "key": "a"}`, i), nil); err != nil {
			t.Fatal(err)
		}
	}
	if s := srv.Stats(); s.Connections != 1 || s.Operations != 20 {
		t.Errorf("stats %+v", s)
	}
}

// What the control endpoint is for.
func TestCosmosControl(t *testing.T) {
	t.Parallel()
	srv := startCosmos(t, &emulator.CosmosConfig{Control: "127.0.0.1:0"}, cosmosDocs)
	c := cosmosContainer(t, srv, policy.ClientOptions{})
	pk := azcosmos.NewPartitionKeyString("a")
	write := func() int {
		_, err := c.UpsertItem(context.Background(), pk, []byte(`{"id": "1", "key": "a"}`), nil)
		var re *azcore.ResponseError
		switch {
		case err == nil:
			return http.StatusOK
		case errors.As(err, &re):
			return re.StatusCode
		}
		t.Fatal(err)
		return 0
	}
	if got := write(); got != http.StatusOK {
		t.Fatal(got)
	}
	call := func(method, path, body string, want int) string {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+srv.ControlAddr()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != want {
			t.Errorf("%s %s: %d %s, %v", method, path, res.StatusCode, text, err)
		}
		return string(text)
	}
	call("POST", "/faults", `{"kind": "status", "status": 429, "retryAfter": "2s", "on": "write", "container": "db/docs", "times": 1}`, http.StatusOK)
	if got := write(); got != http.StatusTooManyRequests {
		t.Errorf("the fault: %d", got)
	}
	if text := call("GET", "/faults", "", http.StatusOK); !strings.Contains(text, `"hits":1`) || !strings.Contains(text, `"retryAfter":"2s"`) {
		t.Errorf("faults %s", text)
	}
	call("DELETE", "/faults/1", "", http.StatusNoContent)
	call("DELETE", "/faults/1", "", http.StatusNotFound)
	call("DELETE", "/faults", "", http.StatusNoContent)
	for _, bad := range []string{`{"kind": "status"}`, `{"kind": "drop", "for": "soon"}`, `{"kind": "drop", "nope": 1}`, `{`} {
		call("POST", "/faults", bad, http.StatusBadRequest)
	}
	call("POST", "/key/revoke", `{}`, http.StatusOK)
	if got := write(); got != http.StatusUnauthorized {
		t.Errorf("the key is revoked: %d", got)
	}
	call("POST", "/key/restore", `{}`, http.StatusOK)
	call("POST", "/split", `{"database": "db", "container": "docs", "range": "0"}`, http.StatusOK)
	call("POST", "/split", `{"database": "db", "container": "docs", "range": "0"}`, http.StatusBadRequest)
	call("POST", "/split", `{"database": "db", "container": "none"}`, http.StatusBadRequest)
	call("POST", "/throughput", `{"database": "db", "container": "docs", "ru": 3000}`, http.StatusOK)
	if text := call("GET", "/stats/db/docs", "", http.StatusOK); strings.Count(text, `"id"`) != 3 {
		t.Errorf("stats %s", text)
	}
	call("GET", "/stats/db/none", "", http.StatusNotFound)
	if text := call("GET", "/stats", "", http.StatusOK); !strings.Contains(text, `"unauthorized":1`) {
		t.Errorf("stats %s", text)
	}
	if got := write(); got != http.StatusOK {
		t.Errorf("after all of that: %d", got)
	}
}

func TestCosmosMistakes(t *testing.T) {
	t.Parallel()
	for want, f := range map[string]func() (*emulator.Cosmos, error){
		"account key 1: not base64, or empty": func() (*emulator.Cosmos, error) {
			return emulator.StartCosmos(nil, &emulator.CosmosConfig{Keys: []string{"%"}})
		},
		"partition key path": func() (*emulator.Cosmos, error) {
			return emulator.StartCosmos([]emulator.CosmosContainer{{Database: "db", Name: "docs", KeyPaths: []string{"key"}}}, nil)
		},
		"a partition key has one path": func() (*emulator.Cosmos, error) {
			return emulator.StartCosmos([]emulator.CosmosContainer{{Database: "db", Name: "docs"}}, nil)
		},
		"already exists": func() (*emulator.Cosmos, error) {
			return emulator.StartCosmos([]emulator.CosmosContainer{cosmosDocs, cosmosDocs}, nil)
		},
		"must be an address on loopback": func() (*emulator.Cosmos, error) {
			return emulator.StartCosmos(nil, &emulator.CosmosConfig{Control: "0.0.0.0:0"})
		},
	} {
		srv, err := f()
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v, want %s", err, want)
		}
		if srv != nil {
			srv.Close()
		}
	}
}

func ExampleStartCosmos() {
	srv, err := emulator.StartCosmos([]emulator.CosmosContainer{{Database: "db", Name: "docs", KeyPaths: []string{"/key"}}}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer srv.Close()
	client, err := azcosmos.NewClientFromConnectionString(srv.ConnectionString(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	container, err := client.NewContainer("db", "docs")
	if err != nil {
		fmt.Println(err)
		return
	}
	res, err := container.UpsertItem(context.Background(), azcosmos.NewPartitionKeyString("a"), []byte(`{"id": "1", "key": "a", "payload": "x"}`), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(res.RawResponse.StatusCode, res.RequestCharge, "RU")
	// Output: 201 6.28 RU
}
