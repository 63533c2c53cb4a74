//go:build interop

package azservicebus

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/emulator"
)

const module = "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

// patience is how long all tests of the client may take. They take about two minutes.
const patience = 12 * time.Minute

// Reasons why a test fails.
const (
	forwarding   = "forwarding is refused"
	duplicates   = "duplicate detection is refused"
	partitioned  = "partitioned entities are refused"
	rules        = "rules of subscriptions are refused"
	entityRights = "authorization rules of an entity are refused"
	rights       = "a namespace without keys accepts any token, and one with keys none of Entra ID"
	distance     = "the emulator answers at once: no messages arrive between two waits of different length"
)

// expected are the tests that fail, with the reason.
var expected = map[string]string{
	"TestAdminClient_Queue_Forwarding":                                                      forwarding,
	"TestClientUnauthorizedCreds":                                                           rights,
	"TestReceiverUnauthorizedCreds":                                                         rights,
	"TestReceiveWithDifferentWaitTime":                                                      distance,
	"Test_Sender_MessageID":                                                                 partitioned,
	"Test_Sender_UsingPartitionedQueue":                                                     partitioned,
	"Test_Sender_Send_MessageTooBig":                                                        partitioned,
	"admin/TestAdminClient_QueueWithMaxValues":                                              duplicates,
	"admin/TestAdminClient_CreateQueue_Standard":                                            duplicates,
	"admin/TestAdminClient_UpdateQueue":                                                     duplicates,
	"admin/TestAdminClient_TopicAndSubscription_Standard":                                   duplicates,
	"admin/TestAdminClient_CreateQueue_Premium":                                             entityRights,
	"admin/TestAdminClient_UpdateTopic":                                                     entityRights,
	"admin/TestAdminClient_TopicAndSubscription_Premium":                                    rules,
	"admin/TestAdminClient_TopicAndSubscription_WithFalseFilterDefaultSubscriptionRule":     rules,
	"admin/TestAdminClient_TopicAndSubscription_WithCustomFilterDefaultSubscriptionRule":    rules,
	"admin/TestAdminClient_TopicAndSubscription_WithActionDefaultSubscriptionRule":          rules,
	"admin/TestAdminClient_TopicAndSubscription_WithActionAndFilterDefaultSubscriptionRule": rules,
	"admin/TestAdminClient_Forwarding":                                                      forwarding,
	"admin/TestAdminClient_LackPermissions_Queue":                                           rights,
}

// slow are tests that mostly wait: for retries, and for locks to expire. They are left out
// unless SLUICE_SERVICEBUS_SUITE is "all", as make soak sets it.
const slow = "^(TestClientUnauthorizedCreds|TestReceiverUnauthorizedCreds|TestRenewLocks.*|TestReceiverMessageLockExpires|TestReceiverDeferWithReceiveAndDelete)$"

// sometimes are the expected failures that depend on time: they may pass.
var sometimes = map[string]bool{"TestReceiveWithDifferentWaitTime": true}

func TestSuite(t *testing.T) {
	t.Parallel()
	source := filepath.Join(t.TempDir(), "azservicebus")
	if err := os.CopyFS(source, os.DirFS(moduleDir(t))); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	environment := namespaces(t)
	// -exec: the go command itself needs the machine's own certificates to download modules.
	args := []string{"test", "-json", "-count=1", "-p=1", "-vet=off", "-timeout=10m", "-exec", "env " + strings.Join(environment.certificates, " ")}
	all := os.Getenv("SLUICE_SERVICEBUS_SUITE") == "all"
	if !all {
		args = append(args, "-skip", slow)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./...")...)
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-buildvcs=false -trimpath -mod=mod")
	cmd.Env = append(cmd.Env, environment.variables...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	passed, failed := judge(t, out, all)
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		t.Fatalf("%v, %v\n%s", err, ctx.Err(), stderr.String())
	}
	t.Logf("%d tests of the client passed, %d failed", passed, failed)
	if passed < 225 {
		t.Errorf("%d tests passed, and at least 225 must\n%s", passed, stderr.String())
	}
}

// judge compares the results of the client's tests with the expected ones. All says that
// none was left out.
func judge(t *testing.T, out io.Reader, all bool) (passed, failed int) {
	output := make(map[string]*strings.Builder)
	seen := make(map[string]bool)
	for d := json.NewDecoder(out); ; {
		var e struct{ Action, Package, Test, Output string }
		if err := d.Decode(&e); err == io.EOF {
			break
		} else if err != nil {
			t.Errorf("read the results: %v", err)
			break
		}
		if e.Test == "" {
			if e.Action == "build-fail" || e.Action == "build-output" {
				t.Error(e.Output)
			}
			continue
		}
		top, _, sub := strings.Cut(e.Test, "/")
		name := strings.TrimPrefix(strings.TrimPrefix(e.Package, module)+"/"+top, "/")
		if output[name] == nil {
			output[name] = &strings.Builder{}
		}
		output[name].WriteString(e.Output)
		if sub {
			continue
		}
		reason, mayFail := expected[name]
		switch seen[name] = seen[name] || e.Action == "pass" || e.Action == "fail"; e.Action {
		case "pass":
			if passed++; mayFail && !sometimes[name] {
				t.Errorf("%s passes: take it out of the list of expected failures", name)
			}
		case "fail":
			if failed++; mayFail {
				t.Logf("%s failed as expected: %s", name, reason)
			} else {
				t.Errorf("%s failed:\n%s", name, tail(output[name].String()))
			}
		}
	}
	left := regexp.MustCompile(slow)
	for name := range expected {
		if !seen[name] && (all || !left.MatchString(name)) {
			t.Errorf("%s, an expected failure, did not run", name)
		}
	}
	return passed, failed
}

// tail is the end of a test's output.
func tail(text string) string { return text[max(0, len(text)-4000):] }

// moduleDir is the directory of the client in the module cache.
func moduleDir(t *testing.T) string {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		t.Fatalf("find the client's source: %v", err)
	}
	return strings.TrimSpace(string(out))
}

// environment is the environment variables of the client's tests.
type environment struct {
	certificates []string // which certificates are trusted
	variables    []string // all others
}

// namespaces starts a standard and a premium namespace, with the queues that Azure's own
// template for these tests makes, and returns the environment in which the tests find them.
func namespaces(t *testing.T) environment {
	dir := t.TempDir()
	trusted := filepath.Join(dir, "trusted.pem")
	var certs []byte
	start := func(name string, premium bool) (endpoint, connection string) {
		cert := filepath.Join(dir, name+".pem")
		queues := []emulator.ServiceBusQueue{{Name: "testQueue", Lock: 5 * time.Minute}, {Name: "testQueueWithSessions", Lock: 5 * time.Minute, Sessions: true}}
		srv, err := emulator.StartServiceBus(queues, nil, &emulator.ServiceBusConfig{Listen: "-", TLSListen: "localhost:0", TLSCertOut: cert, Premium: premium})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := srv.Close(); err != nil {
				t.Errorf("close the namespace: %v", err)
			}
		})
		text, err := os.ReadFile(cert)
		if err != nil {
			t.Fatal(err)
		}
		certs = append(certs, text...)
		_, port, _ := strings.Cut(srv.TLSAddr(), ":")
		endpoint = "localhost:" + port
		return endpoint, strings.Replace(srv.TLSConnectionString(), srv.TLSAddr(), endpoint, 1)
	}
	standard, standardConnection := start("standard", false)
	premium, premiumConnection := start("premium", true)
	if err := os.WriteFile(trusted, certs, 0o666); err != nil {
		t.Fatal(err)
	}
	return environment{certificates: []string{"SSL_CERT_FILE=" + trusted, "SSL_CERT_DIR=" + dir}, variables: []string{
		"AZURE_RECORD_MODE=live",
		"AZURE_TOKEN_CREDENTIALS=ManagedIdentityCredential", "IDENTITY_ENDPOINT=" + identity(t), "IDENTITY_HEADER=local",
		"SERVICEBUS_ENDPOINT=" + standard, "SERVICEBUS_ENDPOINT_PREMIUM=" + premium,
		"SERVICEBUS_CONNECTION_STRING=" + standardConnection, "SERVICEBUS_CONNECTION_STRING_PREMIUM=" + premiumConnection,
		"SERVICEBUS_CONNECTION_STRING_NO_MANAGE=" + standardConnection, "SERVICEBUS_CONNECTION_STRING_SEND_ONLY=" + standardConnection,
		"SERVICEBUS_CONNECTION_STRING_LISTEN_ONLY=" + standardConnection,
	}}
}

// identity serves tokens as the managed identity of an App Service does.
func identity(t *testing.T) string {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]string{
			"access_token": "e30.e30.local", "token_type": "Bearer", "resource": r.URL.Query().Get("resource"), "expires_on": fmt.Sprint(time.Now().Add(time.Hour).Unix()),
		})
	}))
	t.Cleanup(srv.Close)
	return srv.URL + "/token"
}
