package cosmosdb_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/sluice-go/sluice/emulator/internal/cosmosdb"
)

// world is a running account.
type world struct {
	account  *cosmosdb.Account
	endpoint string
}

func serve(t testing.TB, cfg *cosmosdb.Config, containers ...cosmosdb.ContainerConfig) *world {
	t.Helper()
	account, err := cosmosdb.Open(containers, cfg)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := account.Serve(l)
	t.Cleanup(func() {
		if err := errors.Join(srv.Close(), account.Close()); err != nil {
			t.Error(err)
		}
	})
	return &world{account, "http://" + l.Addr().String() + "/"}
}

var docs = cosmosdb.ContainerConfig{Database: "db", Name: "docs", Paths: []string{"/key"}, Partitions: 5}

// client is the official client, without retries.
func (w *world) client(t testing.TB, key string) *azcosmos.Client {
	t.Helper()
	cred, err := azcosmos.NewKeyCredential(key)
	if err != nil {
		t.Fatal(err)
	}
	client, err := azcosmos.NewClientWithKey(w.endpoint, cred, &azcosmos.ClientOptions{
		ClientOptions: policy.ClientOptions{Retry: policy.RetryOptions{MaxRetries: -1}}, EnableContentResponseOnWrite: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func (w *world) container(t testing.TB, database, name string) *azcosmos.ContainerClient {
	t.Helper()
	c, err := w.client(t, cosmosdb.DevKey).NewContainer(database, name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// refused fails the test unless err has that status and substatus.
func refused(t testing.TB, err error, status int, substatus string) {
	t.Helper()
	var re *azcore.ResponseError
	if !errors.As(err, &re) || re.StatusCode != status || re.RawResponse.Header.Get("x-ms-substatus") != substatus {
		t.Helper()
		t.Errorf("got %v, want status %d, substatus %q", err, status, substatus)
	}
}

func item(id, key string, more string) []byte {
	return fmt.Appendf(nil, `{"id": %q, "key": %q%s}`, id, key, more)
}

func TestItems(t *testing.T) {
	ctx := context.Background()
	c := serve(t, nil, docs).container(t, "db", "docs")
	pk := azcosmos.NewPartitionKeyString("a")
	created, err := c.CreateItem(ctx, pk, item("1", "a", `, "n": [1, {"x": "ü\n"}], "_ts": 5, "_etag": "mine"`), nil)
	if err != nil {
		t.Fatal(err)
	}
	if created.RawResponse.StatusCode != http.StatusCreated || created.RequestCharge < 6 || created.ETag == "" {
		t.Errorf("status %d, charge %v, etag %q", created.RawResponse.StatusCode, created.RequestCharge, created.ETag)
	}
	_, err = c.CreateItem(ctx, pk, item("1", "a", ""), nil)
	refused(t, err, http.StatusConflict, "")
	read, err := c.ReadItem(ctx, pk, "1", nil)
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(read.Value, &doc); err != nil {
		t.Fatal(err)
	}
	if string(created.ETag) != doc["_etag"] || doc["_attachments"] != "attachments/" || doc["_ts"].(float64) < 1e9 ||
		!strings.HasSuffix(doc["_self"].(string), "/docs/"+doc["_rid"].(string)+"/") || fmt.Sprint(doc["n"]) != "[1 map[x:ü\n]]" {
		t.Errorf("read %s", read.Value)
	}
	if n := strings.Count(string(read.Value), `"_ts"`); n != 1 {
		t.Errorf("%d _ts in %s", n, read.Value)
	}
	up, err := c.UpsertItem(ctx, pk, item("1", "a", `, "v": 2`), nil)
	if err != nil || up.RawResponse.StatusCode != http.StatusOK || up.ETag == created.ETag || up.RequestCharge < 10 {
		t.Fatalf("upsert: %+v, %v", up, err)
	}
	_, err = c.ReplaceItem(ctx, pk, "1", item("1", "a", `, "v": 3`), &azcosmos.ItemOptions{IfMatchEtag: &created.ETag})
	refused(t, err, http.StatusPreconditionFailed, "")
	if _, err = c.ReplaceItem(ctx, pk, "1", item("1", "a", `, "v": 4`), &azcosmos.ItemOptions{IfMatchEtag: &up.ETag}); err != nil {
		t.Error(err)
	}
	if read, err = c.ReadItem(ctx, pk, "1", nil); err != nil || !strings.Contains(string(read.Value), `"v": 4`) {
		t.Errorf("read %s, %v", read.Value, err)
	}
	_, err = c.ReadItem(ctx, azcosmos.NewPartitionKeyString("b"), "1", nil)
	refused(t, err, http.StatusNotFound, "")
	_, err = c.CreateItem(ctx, azcosmos.NewPartitionKeyString("b"), item("1", "a", ""), nil)
	refused(t, err, http.StatusBadRequest, "1001")
	_, err = c.CreateItem(ctx, pk, []byte(`{"key": "a"}`), nil)
	refused(t, err, http.StatusBadRequest, "")
	_, err = c.CreateItem(ctx, pk, []byte(`{"id": 5, "key": "a"}`), nil)
	refused(t, err, http.StatusBadRequest, "")
	_, err = c.CreateItem(ctx, pk, []byte(`{"id": "x", "key": "a",}`), nil)
	refused(t, err, http.StatusBadRequest, "")
	_, err = c.CreateItem(ctx, pk, item("big", "a", `, "x": "`+strings.Repeat("x", 2<<20)+`"`), nil)
	refused(t, err, http.StatusRequestEntityTooLarge, "")
	_, err = c.ReplaceItem(ctx, pk, "2", item("2", "a", ""), nil)
	refused(t, err, http.StatusNotFound, "")
	for _, id := range []string{"a b", "ü日本", "a%41b", "a+b", "a'b"} {
		if _, err := c.CreateItem(ctx, pk, item(id, "a", ""), nil); err != nil {
			t.Error(err)
		}
		if _, err := c.ReadItem(ctx, pk, id, nil); err != nil {
			t.Error(err)
		}
	}
	if del, err := c.DeleteItem(ctx, pk, "1", nil); err != nil || del.RawResponse.StatusCode != http.StatusNoContent {
		t.Errorf("delete: %v", err)
	}
	_, err = c.DeleteItem(ctx, pk, "1", nil)
	refused(t, err, http.StatusNotFound, "")
}

func TestDatabasesAndContainers(t *testing.T) {
	ctx := context.Background()
	client := serve(t, nil).client(t, cosmosdb.DevKey)
	if _, err := client.CreateDatabase(ctx, azcosmos.DatabaseProperties{ID: "new"}, nil); err != nil {
		t.Fatal(err)
	}
	_, err := client.CreateDatabase(ctx, azcosmos.DatabaseProperties{ID: "new"}, nil)
	refused(t, err, http.StatusConflict, "")
	db, err := client.NewDatabase("new")
	if err != nil {
		t.Fatal(err)
	}
	offer := azcosmos.NewManualThroughputProperties(25_000)
	def := azcosmos.PartitionKeyDefinition{Paths: []string{"/tenant", "/user"}, Kind: azcosmos.PartitionKeyKindMultiHash, Version: 2}
	made, err := db.CreateContainer(ctx, azcosmos.ContainerProperties{ID: "deep", PartitionKeyDefinition: def}, &azcosmos.CreateContainerOptions{ThroughputProperties: &offer})
	if err != nil {
		t.Fatal(err)
	}
	c, err := db.NewContainer("deep")
	if err != nil {
		t.Fatal(err)
	}
	ranges, err := c.ReadFeedRanges(ctx, nil)
	if err != nil || len(ranges) != 3 { // one for each 10,000 RU/s
		t.Errorf("%d ranges, %v", len(ranges), err)
	}
	if p := made.ContainerProperties; p.ID != "deep" || p.ResourceID == "" || len(p.PartitionKeyDefinition.Paths) != 2 || p.IndexingPolicy == nil {
		t.Errorf("made %+v", p)
	}
	th, err := c.ReadThroughput(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if ru, ok := th.ThroughputProperties.ManualThroughput(); !ok || ru != 25_000 {
		t.Errorf("throughput %d", ru)
	}
	if _, err := c.ReplaceThroughput(ctx, azcosmos.NewManualThroughputProperties(40_000), nil); err != nil {
		t.Fatal(err)
	}
	if th, err = c.ReadThroughput(ctx, nil); err != nil {
		t.Fatal(err)
	}
	if ru, _ := th.ThroughputProperties.ManualThroughput(); ru != 40_000 {
		t.Errorf("throughput %d", ru)
	}
	pk := azcosmos.NewPartitionKeyString("t").AppendString("u")
	if _, err := c.UpsertItem(ctx, pk, []byte(`{"id": "1", "tenant": "t", "user": "u"}`), nil); err != nil {
		t.Error(err)
	}
	if _, err := c.ReadItem(ctx, pk, "1", nil); err != nil {
		t.Error(err)
	}
	_, err = c.ReadItem(ctx, azcosmos.NewPartitionKeyString("t"), "1", nil)
	refused(t, err, http.StatusBadRequest, "1001")
	names := 0
	for pager := db.NewQueryContainersPager("SELECT * FROM c WHERE c.id = @id", &azcosmos.QueryContainersOptions{
		QueryParameters: []azcosmos.QueryParameter{{Name: "@id", Value: "deep"}},
	}); pager.More(); {
		page, err := pager.NextPage(ctx)
		if err != nil {
			t.Fatal(err)
		}
		names += len(page.Containers)
	}
	if names != 1 {
		t.Errorf("%d containers", names)
	}
	if _, err := c.Delete(ctx, nil); err != nil {
		t.Error(err)
	}
	_, err = c.ReadItem(ctx, pk, "1", nil)
	refused(t, err, http.StatusNotFound, "1003")
	if _, err := db.Delete(ctx, nil); err != nil {
		t.Error(err)
	}
	_, err = db.Read(ctx, nil)
	refused(t, err, http.StatusNotFound, "")
}

func TestQueries(t *testing.T) {
	ctx := context.Background()
	w := serve(t, nil, docs)
	c := w.container(t, "db", "docs")
	for i := range 230 {
		key := fmt.Sprint("k", i%10)
		if _, err := c.CreateItem(ctx, azcosmos.NewPartitionKeyString(key), item(fmt.Sprint("id", i), key, fmt.Sprintf(`, "n": %d, "sub": {"odd": %v}`, i, i%2 == 1)), nil); err != nil {
			t.Fatal(err)
		}
	}
	all := azcosmos.NewPartitionKey()
	for _, q := range []struct {
		text  string
		pk    azcosmos.PartitionKey
		param any
		size  int32
		want  int
		first string
		pages int
	}{
		{text: "SELECT * FROM c", pk: all, want: 230, pages: 3},
		{text: "SELECT * FROM c", pk: all, size: 7, want: 230, pages: 33},
		{text: "select * from root r where r.sub.odd = true", pk: all, size: -1, want: 115, pages: 1},
		{text: "SELECT VALUE COUNT(1) FROM c", pk: all, want: 1, first: "230", pages: 1},
		{text: "SELECT VALUE COUNT(1) FROM c WHERE c.n < 100 AND NOT c.sub[\"odd\"]", pk: all, want: 1, first: "50", pages: 1},
		{text: "SELECT VALUE COUNT(1) FROM c", pk: azcosmos.NewPartitionKeyString("k3"), want: 1, first: "23", pages: 1},
		{text: "SELECT VALUE SUM(c.n) FROM c WHERE c.key = 'k1'", pk: all, want: 1, first: fmt.Sprint(23*1 + 10*(22*23/2)), pages: 1},
		{text: "SELECT COUNT(1) AS n, MAX(c.n) top FROM c", pk: all, want: 1, first: `{"n":230,"top":229}`, pages: 1},
		{text: "SELECT c.id, c.n FROM c WHERE c.n = @p", pk: all, param: 42, want: 1, first: `{"id":"id42","n":42}`, pages: 1},
		{text: "SELECT VALUE c.id FROM c WHERE c.n IN (1, 2, 300) OR c.n BETWEEN 10 AND 12", pk: all, want: 5, pages: 1},
		{text: "SELECT VALUE c.n FROM c ORDER BY c.n DESC", pk: all, size: 50, want: 230, first: "229", pages: 5},
		{text: "SELECT TOP 3 VALUE c.n FROM c ORDER BY c.n", pk: azcosmos.NewPartitionKeyString("k4"), want: 3, first: "4", pages: 1},
		{text: "SELECT * FROM c OFFSET 5 LIMIT 20", pk: all, size: 8, want: 20, pages: 3},
		{text: "SELECT VALUE c.missing FROM c", pk: all, want: 0, pages: 1},
		{text: "SELECT VALUE c.n FROM c WHERE STARTSWITH(c.id, 'id22') AND c._ts > 0", pk: all, want: 11, pages: 1},
		{text: "SELECT VALUE [c.id, {'n': c.n}] FROM c WHERE c.id = 'id7'", pk: all, want: 1, first: `["id7",{"n":7}]`, pages: 1},
	} {
		var items [][]byte
		pages := 0
		o := &azcosmos.QueryOptions{PageSizeHint: q.size}
		if q.param != nil {
			o.QueryParameters = []azcosmos.QueryParameter{{Name: "@p", Value: q.param}}
		}
		for pager := c.NewQueryItemsPager(q.text, q.pk, o); pager.More(); pages++ {
			page, err := pager.NextPage(ctx)
			if err != nil {
				t.Fatalf("%s: %v", q.text, err)
			}
			if page.RequestCharge < 2 {
				t.Errorf("%s: charged %v", q.text, page.RequestCharge)
			}
			items = append(items, page.Items...)
		}
		if len(items) != q.want || pages != q.pages || q.first != "" && string(items[0]) != q.first {
			t.Errorf("%s: %d items in %d pages, want %d in %d; the first is %s", q.text, len(items), pages, q.want, q.pages, append(items, nil)[0])
		}
		seen := make(map[string]bool)
		for _, it := range items {
			if seen[string(it)] {
				t.Errorf("%s: twice %s", q.text, it)
			}
			seen[string(it)] = true
		}
	}
	for _, text := range []string{"", "SELECT", "SELECT * FROM c WHERE", "SELECT * FROM c WHERE c.n =", "SELECT * FROM c JOIN x IN c.y", "SELECT * FROM c WHERE d.n = 1", "SELECT * FROM c WHERE c.n = @none",
		"SELECT * FROM c WHERE NOPE(c.n)", "SELECT DISTINCT c.n FROM c", "SELECT * FROM c ORDER BY 1", "SELECT * FROM c WHERE COUNT(1) = 2", "DELETE FROM c"} {
		_, err := c.NewQueryItemsPager(text, all, nil).NextPage(ctx)
		refused(t, err, http.StatusBadRequest, "")
	}
	many := []azcosmos.ItemIdentity{{ID: "id3", PartitionKey: azcosmos.NewPartitionKeyString("k3")}, {ID: "id14", PartitionKey: azcosmos.NewPartitionKeyString("k4")},
		{ID: "id14", PartitionKey: azcosmos.NewPartitionKeyString("k5")}}
	if got, err := c.ReadManyItems(ctx, many, nil); err != nil || len(got.Items) != 2 {
		t.Errorf("read many: %d, %v", len(got.Items), err)
	}
}

func TestTransaction(t *testing.T) {
	ctx := context.Background()
	c := serve(t, nil, docs).container(t, "db", "docs")
	pk := azcosmos.NewPartitionKeyString("a")
	b := c.NewTransactionalBatch(pk)
	b.CreateItem(item("1", "a", ""), nil)
	b.UpsertItem(item("2", "a", ""), nil)
	b.ReplaceItem("1", item("1", "a", `, "v": 1`), nil)
	b.ReadItem("1", nil)
	res, err := c.ExecuteTransactionalBatch(ctx, b, &azcosmos.TransactionalBatchOptions{EnableContentResponseOnWrite: true})
	if err != nil || !res.Success || len(res.OperationResults) != 4 {
		t.Fatalf("%+v, %v", res, err)
	}
	for i, want := range []int32{201, 201, 200, 200} {
		if r := res.OperationResults[i]; r.StatusCode != want || r.RequestCharge <= 0 || r.ETag == "" || len(r.ResourceBody) == 0 {
			t.Errorf("operation %d: %+v", i, r)
		}
	}
	before, err := c.ReadItem(ctx, pk, "1", nil)
	if err != nil {
		t.Fatal(err)
	}
	b = c.NewTransactionalBatch(pk)
	b.UpsertItem(item("1", "a", `, "long": "`+strings.Repeat("x", 5000)+`"`), nil)
	b.DeleteItem("2", nil)
	b.CreateItem(item("3", "a", ""), nil)
	b.DeleteItem("none", nil)
	b.CreateItem(item("4", "a", ""), nil)
	if res, err = c.ExecuteTransactionalBatch(ctx, b, nil); err != nil || res.Success {
		t.Fatalf("%+v, %v", res, err)
	}
	for i, want := range []int32{424, 424, 424, 404, 424} {
		if r := res.OperationResults[i]; r.StatusCode != want {
			t.Errorf("operation %d: %+v", i, r)
		}
	}
	after, err := c.ReadItem(ctx, pk, "1", nil)
	if err != nil || string(after.Value) != string(before.Value) {
		t.Errorf("the batch was taken back to %s, %v", after.Value, err)
	}
	if _, err = c.ReadItem(ctx, pk, "2", nil); err != nil {
		t.Errorf("the deleted document isn't back: %v", err)
	}
	_, err = c.ReadItem(ctx, pk, "3", nil)
	refused(t, err, http.StatusNotFound, "")
	b = c.NewTransactionalBatch(pk)
	for i := range 101 {
		b.CreateItem(item(fmt.Sprint("x", i), "a", ""), nil)
	}
	_, err = c.ExecuteTransactionalBatch(ctx, b, nil)
	refused(t, err, http.StatusBadRequest, "")
	b = c.NewTransactionalBatch(pk)
	b.CreateItem(item("5", "other", ""), nil)
	if res, err = c.ExecuteTransactionalBatch(ctx, b, nil); err != nil || res.OperationResults[0].StatusCode != 400 {
		t.Errorf("a foreign key: %+v, %v", res, err)
	}
}

// token is a credential with a fixed access token.
type token string

func (t token) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: string(t), ExpiresOn: time.Now().Add(time.Hour)}, nil
}

func TestTokens(t *testing.T) {
	w := serve(t, &cosmosdb.Config{Tokens: []string{"good"}}, docs)
	for credential, want := range map[token]string{"good": "", "bad": "401 Unauthorized"} {
		client, err := azcosmos.NewClient(w.endpoint, credential, &azcosmos.ClientOptions{ClientOptions: policy.ClientOptions{Retry: policy.RetryOptions{MaxRetries: -1}}})
		if err != nil {
			t.Fatal(err)
		}
		c, err := client.NewContainer("db", "docs")
		if err != nil {
			t.Fatal(err)
		}
		if _, err = c.Read(context.Background(), nil); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", credential, err)
		}
	}
}

func TestKeys(t *testing.T) {
	ctx := context.Background()
	w := serve(t, nil, docs)
	c := w.container(t, "db", "docs")
	other, err := w.client(t, "b3RoZXI=").NewContainer("db", "docs")
	if err != nil {
		t.Fatal(err)
	}
	if _, err = other.Read(ctx, nil); err == nil || !strings.Contains(err.Error(), "401 Unauthorized") { // the client hides its kind
		t.Errorf("with another key: %v", err)
	}
	if _, err = c.Read(ctx, nil); err != nil {
		t.Fatal(err)
	}
	if err := w.account.RevokeKey(cosmosdb.DevKey); err != nil {
		t.Fatal(err)
	}
	_, err = c.Read(ctx, nil)
	refused(t, err, http.StatusUnauthorized, "")
	if err := w.account.RestoreKey(cosmosdb.DevKey); err != nil {
		t.Fatal(err)
	}
	if _, err = c.Read(ctx, nil); err != nil {
		t.Error(err)
	}
}
