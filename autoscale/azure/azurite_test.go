package azure_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/azure"
	"github.com/sluice-go/sluice/internal/proof/azurite"
	"github.com/sluice-go/sluice/internal/proof/need"
)

// entra is a credential whose tokens the server accepts: it checks only their claims.
type entra struct{}

func (entra) GetToken(_ context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	until := time.Now().Add(time.Hour)
	return azcore.AccessToken{Token: azurite.Token(until, strings.TrimSuffix(o.Scopes[0], "/.default")), ExpiresOn: until}, nil
}

// azureOnLoopback redirects requests for Azure's hosts to the server.
type azureOnLoopback struct {
	client         *http.Client
	queues, tables *url.URL
}

func (l *azureOnLoopback) Do(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	to := map[string]*url.URL{"contoso.queue.core.windows.net": l.queues, "contoso.table.core.windows.net": l.tables}[r.URL.Host]
	r.URL.Scheme, r.URL.Host, r.Host = to.Scheme, to.Host, to.Host
	r.URL.Path = to.Path + r.URL.Path
	if r.URL.RawPath != "" {
		r.URL.RawPath = to.Path + r.URL.RawPath
	}
	return l.client.Do(r)
}

// TestEntraID: an account by its name, with tokens, over TLS.
func TestEntraID(t *testing.T) {
	need.Azurite(t)
	t.Parallel()
	server := azurite.New(t, &azurite.Config{TLS: true, All: true})
	endpoint := func(name string) *url.URL {
		_, rest, _ := strings.Cut(server.ConnectionString(), name+"=")
		at, _, _ := strings.Cut(rest, ";")
		u, err := url.Parse(at)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	cfg := &azure.Config{Account: "contoso", Credential: entra{},
		Client: policy.ClientOptions{Transport: &azureOnLoopback{server.Client(), endpoint("QueueEndpoint"), endpoint("TableEndpoint")}}}
	queue, err := azure.OpenQueue(t.Context(), "metrics", cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := queue.Send(t.Context(), []byte("a")); err != nil {
		t.Error(err)
	}
	if list, err := queue.Receive(t.Context(), 1); err != nil || len(list) != 1 || string(list[0].Body) != "a" {
		t.Errorf("received %v, %v", list, err)
	}
	store, err := azure.OpenStore(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	// Not the state: a transaction has URLs, which here would have another host.
	if err := store.SetOutcome(t.Context(), "r", autoscale.Outcome{Number: 3}); err != nil {
		t.Error(err)
	}
	if o, err := store.Outcome(t.Context(), "r"); err != nil || o.Number != 3 {
		t.Errorf("loaded %+v, %v", o, err)
	}
}

// TestPublishedNames: the names of queues, table, rows and properties, which other
// programs may use.
func TestPublishedNames(t *testing.T) {
	need.Azurite(t)
	t.Parallel()
	connection := azurite.New(t, &azurite.Config{All: true}).ConnectionString()
	cfg := &azure.Config{Connection: connection, Poll: 10 * time.Millisecond}
	queue, err := azure.OpenQueue(t.Context(), autoscale.ActionsQueue, cfg)
	if err != nil {
		t.Fatal(err)
	}
	service, err := azqueue.NewServiceClientFromConnectionString(connection, nil)
	if err != nil {
		t.Fatal(err)
	}
	// A text that is not base64 is the body as it is, and can become a dead letter.
	if _, err := service.NewQueueClient("actions").EnqueueMessage(t.Context(), "{not base64}", nil); err != nil {
		t.Fatal(err)
	}
	list, err := queue.Receive(t.Context(), 10)
	if err != nil || len(list) != 1 || string(list[0].Body) != "{not base64}" {
		t.Fatalf("received %v, %v", list, err)
	}
	if err := queue.DeadLetter(t.Context(), &list[0], "not JSON"); err != nil {
		t.Fatal(err)
	}
	poison, err := service.NewQueueClient("actions-poison").PeekMessage(t.Context(), nil)
	if err != nil || len(poison.Messages) != 1 {
		t.Errorf("in actions-poison: %v, %v", poison.Messages, err)
	}
	if err := queue.Send(t.Context(), make([]byte, azure.MaxBody+1)); err == nil {
		t.Error("a message that is too large is sent")
	}
	if err := queue.Send(t.Context(), make([]byte, azure.MaxBody)); err != nil {
		t.Errorf("the longest message: %v", err)
	}
}

// TestPublishedRowIsDated: a table says when a row was written, so that a published autoscaler that
// runs is noticed.
func TestPublishedRowIsDated(t *testing.T) {
	need.Azurite(t)
	t.Parallel()
	connection := azurite.New(t, &azurite.Config{All: true}).ConnectionString()
	store, err := azure.OpenStore(t.Context(), &azure.Config{Connection: connection})
	if err != nil {
		t.Fatal(err)
	}
	service, err := aztables.NewServiceClientFromConnectionString(connection, nil)
	if err != nil {
		t.Fatal(err)
	}
	row := []byte(`{"PartitionKey":"plan 1","RowKey":"backlog","SerializedState":"{}"}`)
	if _, err := service.NewClient("Scaling").AddEntity(t.Context(), row, nil); err != nil {
		t.Fatal(err)
	}
	m, err := store.Load(t.Context(), "plan 1")
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Save(t.Context(), m); err == nil || !strings.Contains(err.Error(), "the published autoscaler still runs") {
		t.Errorf("saved beside it: %v", err)
	}
}
