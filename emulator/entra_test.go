package emulator_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/go-amqp"

	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/proof/need"
)

func startIssuer(t *testing.T, cfg *emulator.IssuerConfig, principals ...emulator.Principal) *emulator.Issuer {
	t.Helper()
	issuer, err := emulator.StartIssuer(append(principals, []emulator.Principal{
		{ID: "all", Secret: "all-secret"}, {ID: "reader", Secret: "reader-secret", Rights: emulator.Listen},
		{ID: "writer", Secret: "writer-secret", Rights: emulator.Send},
	}...), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := issuer.Close(); err != nil {
			t.Error(err)
		}
	})
	return issuer
}

// credentialOf is a credential as programs on Azure have it, with the issuer's environment.
func credentialOf(t *testing.T, issuer *emulator.Issuer, id string) azcore.TokenCredential {
	t.Helper()
	for _, variable := range issuer.Environment(id) {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
	}
	credential, err := azidentity.NewDefaultAzureCredential(nil)
	if err != nil {
		t.Fatal(err)
	}
	return credential
}

// static is a credential with one token.
type static string

func (s static) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: string(s), ExpiresOn: time.Now().Add(time.Hour)}, nil
}

func sendWith(t *testing.T, srv *emulator.Server, credential azcore.TokenCredential) error {
	t.Helper()
	p, err := azeventhubs.NewProducerClient("localhost", "h", credential, &azeventhubs.ProducerClientOptions{
		RetryOptions: noRetry, CustomEndpoint: srv.TLSAddr(), TLSConfig: &tls.Config{RootCAs: srv.CertPool(), ServerName: "localhost"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(testContext(t))
	if _, err := p.GetEventHubProperties(testContext(t), nil); err != nil {
		return err
	}
	batch, err := p.NewEventDataBatch(testContext(t), to0())
	if err != nil {
		return err
	}
	if err := batch.AddEventData(&azeventhubs.EventData{Body: []byte("a")}, nil); err != nil {
		t.Fatal(err)
	}
	return p.SendEventDataBatch(testContext(t), batch, nil)
}

// DefaultAzureCredential works with a server that knows the issuer, within the principal's
// rights, besides keys; tokens of another issuer, and expired ones, are refused.
func TestEntraTokens(t *testing.T) {
	all := fmt.Sprint("all-", time.Now().UnixNano()) // the client library keeps tokens by id in the whole process
	issuer := startIssuer(t, nil, emulator.Principal{ID: all, Secret: all}, emulator.Principal{ID: "reader of " + all, Secret: all + "r", Rights: emulator.Listen})
	srv := start(t, one("h", 1), &emulator.Config{TLSListen: "127.0.0.1:0", Keys: []emulator.Key{{Name: "root", Secret: "cm9vdA=="}}, Issuer: issuer})
	if err := sendWith(t, srv, credentialOf(t, issuer, all)); err != nil {
		t.Error(err)
	}
	if err := sendWith(t, srv, credentialOf(t, issuer, "reader of "+all)); err == nil {
		t.Error("sent with the right to listen")
	} else {
		wantText(t, err, "'Send' claim(s) are required")
	}
	if err := sendWith(t, srv, static(tokenOf(t, startIssuer(t, nil), "all-secret", "https://eventhubs.azure.net"))); err == nil {
		t.Error("sent with a token of another issuer")
	} else {
		wantText(t, err, "The token has an invalid signature")
	}
	if err := sendWith(t, srv, entra{}); err == nil {
		t.Error("sent with a token that is none")
	}
	send(t, producer(t, srv, "h"), to0(), "by key")

	alone := start(t, one("h", 1), &emulator.Config{TLSListen: "127.0.0.1:0", Issuer: issuer})
	if err := sendWith(t, alone, credentialOf(t, issuer, all)); err != nil {
		t.Error(err)
	}
	if _, err := producer(t, alone, "h").GetEventHubProperties(testContext(t), nil); err == nil {
		t.Error("a server without keys, but with an issuer, accepted a key")
	}
}

// Tokens expire, and links with them.
func TestEntraExpiry(t *testing.T) {
	need.RealTime(t)
	issuer := startIssuer(t, &emulator.IssuerConfig{Lifetime: 2 * time.Second})
	srv := start(t, one("h", 1), &emulator.Config{Issuer: issuer})
	s := session(t, srv)
	cbs := newRPC(t, s, "$cbs")
	put := func(token string) (int32, string) {
		status, why, _ := cbs.call("replies", map[string]any{"operation": "put-token", "name": "sb://localhost/h", "type": "jwt"}, token)
		return status, why
	}
	const valid = time.Second // at least: a token expires at a full second
	for _, resource := range []string{"https://cosmos.azure.com", ""} {
		retryIfSlow(t, valid, func(context.Context) error {
			if status, why := put(tokenOf(t, issuer, "all-secret", resource)); status != 401 || !strings.HasPrefix(why, "InvalidAudience") {
				return fmt.Errorf("a token for %q: %d %s", resource, status, why)
			}
			return nil
		})
	}
	token := tokenOf(t, issuer, "all-secret", "https://eventhubs.azure.net")
	part := strings.Split(token, ".")
	for _, forged := range []string{"", ".", "..", part[0] + "." + part[1] + ".", part[0] + "." + part[1] + "x." + part[2], strings.Repeat(token, 20)} {
		if status, why := put(forged); status != 401 {
			t.Errorf("%.40q: %d %s", forged, status, why)
		}
	}
	var r *amqp.Receiver
	retryIfSlow(t, valid, func(ctx context.Context) (err error) {
		token = tokenOf(t, issuer, "all-secret", "https://eventhubs.azure.net")
		if status, why := put(token); status != 202 {
			return fmt.Errorf("%d %s", status, why)
		}
		r, err = s.NewReceiver(ctx, fromZero, nil)
		return err
	})
	if _, err := r.Receive(testContext(t), nil); condition(err) != "amqp:unauthorized-access" {
		t.Errorf("the link ended with %v", err)
	}
	if status, why := put(token); status != 401 || !strings.HasPrefix(why, "ExpiredToken") {
		t.Errorf("an expired token: %d %s", status, why)
	}
}

func tokenOf(t *testing.T, issuer *emulator.Issuer, secret, resource string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(testContext(t), http.MethodGet, issuer.URL()+"/msi/token?resource="+url.QueryEscape(resource), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-IDENTITY-HEADER", secret)
	return accessToken(t, req)
}

func accessToken(t *testing.T, req *http.Request) string {
	t.Helper()
	res, err := new(http.Transport).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var answer struct {
		AccessToken string `json:"access_token"`
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil || (answer.AccessToken == "") != (res.StatusCode != http.StatusOK) {
		t.Fatalf("status %d, %+v, %v", res.StatusCode, answer, err)
	}
	return answer.AccessToken
}

// A client proves its secret for a token.
func TestClientCredentials(t *testing.T) {
	issuer := startIssuer(t, nil)
	for _, c := range []struct {
		id, secret, grant string
		issued            bool
	}{
		{"all", "all-secret", "client_credentials", true}, {"all", "reader-secret", "client_credentials", false}, {"none", "all-secret", "client_credentials", false},
		{"all", "", "client_credentials", false}, {"", "all-secret", "client_credentials", false}, {"all", "all-secret", "password", false},
	} {
		form := url.Values{"client_id": {c.id}, "client_secret": {c.secret}, "grant_type": {c.grant}, "scope": {"https://eventhubs.azure.net/.default"}}
		req, err := http.NewRequestWithContext(testContext(t), http.MethodPost, issuer.URL()+"/any/oauth2/v2.0/token", strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if token := accessToken(t, req); (token != "") != c.issued {
			t.Errorf("%+v: token %q", c, token)
		}
	}
}
