package cosmosdb_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

// The operations do what the official client says of them.
func TestPatch(t *testing.T) {
	ctx := context.Background()
	c := serve(t, nil, docs).container(t, "db", "docs")
	pk := azcosmos.NewPartitionKeyString("a")
	const before = `, "n": 5, "s": "x", "f": 0.5, "o": {"p": {"q": 1}}, "l": [1, 2, {"m": 3}], "a/b~c": 1, "none": null`
	for name, p := range map[string]struct {
		patch  func(*azcosmos.PatchOperations)
		status int    // 0: the patch succeeds
		want   string // a property, or a part of the error
	}{
		"add a property":          {func(p *azcosmos.PatchOperations) { p.AppendAdd("/new", "v") }, 0, `"new":"v"`},
		"add replaces":            {func(p *azcosmos.PatchOperations) { p.AppendAdd("/s", []int{1}) }, 0, `"s":[1]`},
		"add below":               {func(p *azcosmos.PatchOperations) { p.AppendAdd("/o/p/r", 2) }, 0, `"o":{"p":{"q":1,"r":2}}`},
		"add without a parent":    {func(p *azcosmos.PatchOperations) { p.AppendAdd("/no/p", 2) }, 400, "cannot create path recursively"},
		"add below a text":        {func(p *azcosmos.PatchOperations) { p.AppendAdd("/s/p", 2) }, 400, "cannot create path recursively"},
		"add inserts":             {func(p *azcosmos.PatchOperations) { p.AppendAdd("/l/1", 9) }, 0, `"l":[1,9,2,{"m":3}]`},
		"add at the end":          {func(p *azcosmos.PatchOperations) { p.AppendAdd("/l/3", 9) }, 0, `"l":[1,2,{"m":3},9]`},
		"add appends":             {func(p *azcosmos.PatchOperations) { p.AppendAdd("/l/-", 9) }, 0, `"l":[1,2,{"m":3},9]`},
		"add after the end":       {func(p *azcosmos.PatchOperations) { p.AppendAdd("/l/4", 9) }, 400, "3 elements"},
		"set":                     {func(p *azcosmos.PatchOperations) { p.AppendSet("/n", nil); p.AppendSet("/n", true) }, 400, "needs a value"}, // the client leaves null out
		"set a property":          {func(p *azcosmos.PatchOperations) { p.AppendSet("/n", true) }, 0, `"n":true`},
		"set an element":          {func(p *azcosmos.PatchOperations) { p.AppendSet("/l/1", 9) }, 0, `"l":[1,9,{"m":3}]`},
		"set below an element":    {func(p *azcosmos.PatchOperations) { p.AppendSet("/l/2/m", 9) }, 0, `"l":[1,2,{"m":9}]`},
		"replace":                 {func(p *azcosmos.PatchOperations) { p.AppendReplace("/o/p", 7) }, 0, `"o":{"p":7}`},
		"replace what is not":     {func(p *azcosmos.PatchOperations) { p.AppendReplace("/no", 7) }, 400, "existing path"},
		"replace no element":      {func(p *azcosmos.PatchOperations) { p.AppendReplace("/l/3", 7) }, 400, "existing path"},
		"remove":                  {func(p *azcosmos.PatchOperations) { p.AppendRemove("/o/p") }, 0, `"o":{}`},
		"remove an element":       {func(p *azcosmos.PatchOperations) { p.AppendRemove("/l/0") }, 0, `"l":[2,{"m":3}]`},
		"remove what is not":      {func(p *azcosmos.PatchOperations) { p.AppendRemove("/no") }, 400, "existing path"},
		"increment":               {func(p *azcosmos.PatchOperations) { p.AppendIncrement("/n", 9007199254740993) }, 0, `"n":9007199254740998`},
		"decrement":               {func(p *azcosmos.PatchOperations) { p.AppendIncrement("/f", -2) }, 0, `"f":-1.5`},
		"increment what is not":   {func(p *azcosmos.PatchOperations) { p.AppendIncrement("/o/n", 3) }, 0, `"o":{"p":{"q":1},"n":3}`},
		"increment a text":        {func(p *azcosmos.PatchOperations) { p.AppendIncrement("/s", 3) }, 400, "number"},
		"escaped":                 {func(p *azcosmos.PatchOperations) { p.AppendSet("/a~1b~0c", 3) }, 0, `"a/b~c":3`},
		"all or nothing":          {func(p *azcosmos.PatchOperations) { p.AppendSet("/n", 1); p.AppendRemove("/no") }, 400, "For Operation(2)"},
		"in order":                {func(p *azcosmos.PatchOperations) { p.AppendAdd("/x", []int{}); p.AppendAdd("/x/-", 1) }, 0, `"x":[1]`},
		"the id":                  {func(p *azcosmos.PatchOperations) { p.AppendSet("/id", "2") }, 400, "id can't be patched"},
		"the key":                 {func(p *azcosmos.PatchOperations) { p.AppendSet("/key", "b") }, 400, "partition key"},
		"a system property":       {func(p *azcosmos.PatchOperations) { p.AppendSet("/_ts", 1) }, 400, "_ts can't be patched"},
		"none":                    {func(*azcosmos.PatchOperations) {}, 400, "1 to 10"},
		"a path without a slash":  {func(p *azcosmos.PatchOperations) { p.AppendSet("n", 1) }, 400, "must begin with /"},
		"a condition that is met": {func(p *azcosmos.PatchOperations) { p.SetCondition("from c where c.n = 5"); p.AppendSet("/n", 6) }, 0, `"n":6`},
		"a condition that is not": {func(p *azcosmos.PatchOperations) { p.SetCondition("from c where c.n > 5"); p.AppendSet("/n", 6) }, 412, ""},
		"a wrong condition":       {func(p *azcosmos.PatchOperations) { p.SetCondition("from c where"); p.AppendSet("/n", 6) }, 400, ""},
		"10 operations":           {func(p *azcosmos.PatchOperations) { increments(p, 10) }, 0, `"n":15`},
		"11 operations":           {func(p *azcosmos.PatchOperations) { increments(p, 11) }, 400, "can't exceed '10'"},
	} {
		stored, err := c.UpsertItem(ctx, pk, item("1", "a", before), nil)
		if err != nil {
			t.Fatal(err)
		}
		var patch azcosmos.PatchOperations
		p.patch(&patch)
		answer, err := c.PatchItem(ctx, pk, "1", patch, &azcosmos.ItemOptions{EnableContentResponseOnWrite: true})
		read, readErr := c.ReadItem(ctx, pk, "1", nil)
		if readErr != nil {
			t.Fatal(readErr)
		}
		if p.status == 0 {
			if err != nil || string(answer.Value) != string(read.Value) || !strings.Contains(compact(t, read.Value), p.want) || answer.ETag == stored.ETag || answer.RequestCharge < 10 {
				t.Errorf("%s: %v, charge %v, document %s", name, err, answer.RequestCharge, read.Value)
			}
			continue
		}
		refused(t, err, p.status, "")
		if !strings.Contains(fmt.Sprint(err), p.want) || read.ETag != stored.ETag {
			t.Errorf("%s: %v, document %s", name, err, read.Value)
		}
	}
}

func increments(p *azcosmos.PatchOperations, n int) {
	for range n {
		p.AppendIncrement("/n", 1)
	}
}

func compact(t testing.TB, document []byte) string {
	t.Helper()
	var properties map[string]json.RawMessage
	if err := json.Unmarshal(document, &properties); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for name, value := range properties {
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%q:%s\n", name, text)
	}
	return b.String()
}

// A patch goes by the version that it is for, and is one operation of a transaction.
func TestPatchAmongOthers(t *testing.T) {
	ctx := context.Background()
	c := serve(t, nil, docs).container(t, "db", "docs")
	pk := azcosmos.NewPartitionKeyString("a")
	var set azcosmos.PatchOperations
	set.AppendIncrement("/n", 1)
	_, err := c.PatchItem(ctx, pk, "1", set, nil)
	refused(t, err, http.StatusNotFound, "")
	created, err := c.CreateItem(ctx, pk, item("1", "a", `, "n": 1`), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.PatchItem(ctx, pk, "1", set, &azcosmos.ItemOptions{IfMatchEtag: &created.ETag}); err != nil {
		t.Error(err)
	}
	_, err = c.PatchItem(ctx, pk, "1", set, &azcosmos.ItemOptions{IfMatchEtag: &created.ETag})
	refused(t, err, http.StatusPreconditionFailed, "")
	for _, last := range []struct {
		etag azcore.ETag
		want string
	}{{"other", `"n":2`}, {"*", `"n":4`}} {
		batch := c.NewTransactionalBatch(pk)
		batch.PatchItem("1", set, nil)
		batch.CreateItem(item("2", "a", ""), nil)
		batch.PatchItem("1", set, &azcosmos.TransactionalBatchItemOptions{IfMatchETag: &last.etag})
		answer, err := c.ExecuteTransactionalBatch(ctx, batch, nil)
		if err != nil || answer.Success != (last.etag == "*") {
			t.Errorf("batch with %s: %+v, %v", last.etag, answer, err)
		}
		read, err := c.ReadItem(ctx, pk, "1", nil)
		if err != nil || !strings.Contains(compact(t, read.Value), last.want) {
			t.Errorf("after the batch with %s: %s, %v", last.etag, read.Value, err)
		}
	}
}
