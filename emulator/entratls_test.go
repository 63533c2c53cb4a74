package emulator_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/url"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/sluice-go/sluice/emulator"
)

func trusting(t *testing.T, roots *x509.CertPool) *http.Client {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// secretOf is a credential with a client secret, whose tokens come from an HTTPS address.
func secretOf(t *testing.T, address string, roots *x509.CertPool, id string) azcore.TokenCredential {
	t.Helper()
	credential, err := azidentity.NewClientSecretCredential("any-tenant", id, id+"-secret", &azidentity.ClientSecretCredentialOptions{
		ClientOptions: policy.ClientOptions{
			Cloud: cloud.Configuration{ActiveDirectoryAuthorityHost: "https://" + address + "/"}, Transport: trusting(t, roots), Retry: policy.RetryOptions{MaxRetries: -1},
		},
		DisableInstanceDiscovery: true,
	})
	must(t, err)
	return credential
}

// ClientSecretCredential gets tokens from the TLS address of a namespace of event hubs.
func TestClientSecretForHubs(t *testing.T) {
	issuer := startIssuer(t, nil)
	srv := start(t, one("h", 1), &emulator.Config{TLSListen: "127.0.0.1:0", Keys: []emulator.Key{{Name: "root", Secret: "cm9vdA=="}}, Issuer: issuer})
	must(t, sendWith(t, srv, secretOf(t, srv.TLSAddr(), srv.CertPool(), "all")))
	if err := sendWith(t, srv, secretOf(t, srv.TLSAddr(), srv.CertPool(), "reader")); err == nil {
		t.Error("sent with the right to listen")
	} else {
		wantText(t, err, "'Send' claim(s) are required")
	}
	_, err := secretOf(t, srv.TLSAddr(), srv.CertPool(), "nobody").GetToken(testContext(t), policy.TokenRequestOptions{Scopes: []string{"https://eventhubs.azure.net/.default"}})
	wantText(t, err, "no principal has that id and secret")
}

// The same of a Service Bus namespace, whose TLS address still serves the administration API.
func TestClientSecretForServiceBus(t *testing.T) {
	srv := startBus(t, emulator.ServiceBusQueue{}, &emulator.ServiceBusConfig{Listen: "-", TLSListen: "127.0.0.1:0", Issuer: startIssuer(t, nil)})
	credential := func(id string) azcore.TokenCredential { return secretOf(t, srv.TLSAddr(), srv.CertPool(), id) }
	client := func(id string) *azservicebus.Client {
		c, err := azservicebus.NewClient("localhost", credential(id), &azservicebus.ClientOptions{
			CustomEndpoint: srv.TLSAddr(), TLSConfig: &tls.Config{RootCAs: srv.CertPool(), ServerName: "localhost"},
		})
		must(t, err)
		t.Cleanup(func() { c.Close(context.Background()) })
		return c
	}
	sendText(t, busSender(t, client("all"), "orders"), "by secret")
	receiveText(t, busReceiver(t, client("reader"), "orders", nil), "by secret")
	res, err := trusting(t, srv.CertPool()).Get("https://" + srv.TLSAddr() + "/orders")
	must(t, err)
	res.Body.Close()
	if res.StatusCode != http.StatusUnauthorized { // the administration API's answer without a token
		t.Errorf("status %d of the administration API", res.StatusCode)
	}
}

// The same of a Cosmos DB account, which accepts tokens for its host within the principal's
// rights.
func TestClientSecretForCosmos(t *testing.T) {
	issuer := startIssuer(t, nil)
	srv, err := emulator.StartCosmos([]emulator.CosmosContainer{{Database: "db", Name: "docs", KeyPaths: []string{"/pk"}}},
		&emulator.CosmosConfig{TLS: true, Keys: []string{"a2V5"}, Issuer: issuer})
	must(t, err)
	t.Cleanup(func() { must(t, srv.Close()) })
	container := func(credential azcore.TokenCredential) *azcosmos.ContainerClient {
		client, err := azcosmos.NewClient(srv.Endpoint(), credential, &azcosmos.ClientOptions{
			ClientOptions: policy.ClientOptions{Transport: trusting(t, srv.CertPool()), Retry: policy.RetryOptions{MaxRetries: -1}},
		})
		must(t, err)
		c, err := client.NewContainer("db", "docs")
		must(t, err)
		return c
	}
	key, document := azcosmos.NewPartitionKeyString("a"), []byte(`{"id":"1","pk":"a"}`)
	all, reader := container(secretOf(t, srv.Addr(), srv.CertPool(), "all")), container(secretOf(t, srv.Addr(), srv.CertPool(), "reader"))
	_, err = all.UpsertItem(testContext(t), key, document, nil)
	must(t, err)
	_, err = reader.Read(testContext(t), nil)
	must(t, err)
	_, err = reader.ReadItem(testContext(t), key, "1", nil)
	must(t, err)
	page, err := reader.NewQueryItemsPager("SELECT * FROM c", key, nil).NextPage(testContext(t))
	if err != nil || len(page.Items) != 1 {
		t.Errorf("the query's answer is %s, %v", page.Items, err)
	}
	_, err = reader.UpsertItem(testContext(t), key, document, nil)
	wantAnswer(t, err, http.StatusForbidden, "principal [reader] does not have required RBAC permissions")
	_, err = reader.DeleteItem(testContext(t), key, "1", nil)
	wantAnswer(t, err, http.StatusForbidden, "containers/items/write")
	_, err = reader.Delete(testContext(t), nil)
	wantAnswer(t, err, http.StatusForbidden, "Request blocked by Auth")
	batch := reader.NewTransactionalBatch(key)
	batch.UpsertItem(document, nil)
	_, err = reader.ExecuteTransactionalBatch(testContext(t), batch, nil)
	wantAnswer(t, err, http.StatusForbidden, "containers/items/write")
	writer := container(secretOf(t, srv.Addr(), srv.CertPool(), "writer"))
	_, err = writer.UpsertItem(testContext(t), key, document, nil)
	must(t, err)
	_, err = writer.ReadItem(testContext(t), key, "1", nil)
	wantAnswer(t, err, http.StatusForbidden, "containers/items/read")
	batch = writer.NewTransactionalBatch(key)
	batch.UpsertItem(document, nil)
	batch.ReadItem("1", nil)
	_, err = writer.ExecuteTransactionalBatch(testContext(t), batch, nil)
	wantAnswer(t, err, http.StatusForbidden, "containers/items/read")
	// A header that is for batches does not make a read a write.
	req, err := http.NewRequestWithContext(testContext(t), http.MethodGet, srv.Endpoint()+"/dbs/db/colls/docs/docs/1", nil)
	must(t, err)
	req.Header = http.Header{
		"Authorization": {url.QueryEscape("type=aad&ver=1.0&sig=" + tokenOf(t, issuer, "writer-secret", "https://cosmos.azure.com"))},
		"X-Ms-Version":  {"2020-11-05"}, "X-Ms-Documentdb-Partitionkey": {`["a"]`}, "X-Ms-Cosmos-Is-Batch-Request": {"true"},
	}
	res, err := trusting(t, srv.CertPool()).Do(req)
	must(t, err)
	res.Body.Close()
	if res.StatusCode != http.StatusForbidden {
		t.Errorf("a read with the header of a batch: status %d", res.StatusCode)
	}

	for token, why := range map[string]string{
		tokenOf(t, issuer, "all-secret", "https://cosmos.azure.com"):                   "",
		tokenOf(t, issuer, "all-secret", "https://eventhubs.azure.net"):                "InvalidAudience",
		tokenOf(t, startIssuer(t, nil), "all-secret", "https://cosmos.azure.com"):      "invalid signature",
		tokenOf(t, issuer, "all-secret", "https://other.documents.azure.com/.default"): "InvalidAudience",
		"none": "neither a shared access signature nor",
	} {
		_, err := container(static(token)).ReadItem(testContext(t), key, "1", nil)
		if why == "" {
			must(t, err)
		} else {
			wantAnswer(t, err, http.StatusUnauthorized, why)
		}
	}
}

func wantAnswer(t *testing.T, err error, status int, text string) {
	t.Helper()
	var response *azcore.ResponseError
	if !errors.As(err, &response) || response.StatusCode != status {
		t.Errorf("%v, want status %d", err, status)
		return
	}
	wantText(t, err, text)
}
