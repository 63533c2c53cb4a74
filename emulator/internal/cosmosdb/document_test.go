package cosmosdb

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// documents is a corpus of valid and invalid JSON.
var documents = []string{
	`{}`, `{"id":"1"}`, ` { "id" : "1" , "key" : "a" } `, `{"id":"1","key":"a","n":[1,2.5e-3,{"x":null}],"b":true}`, `{"id":"ü","key":"日本語","x":"\u00fc\ud83d\ude00\n"}`,
	`{"id":"1","_rid":"x","_ts":5,"key":"a","_etag":"\"","_self":{},"_attachments":[]}`, `{"_ts":1}`, `{"_ts":1,"id":"1"}`, `{"id":"1","_ts":1}`, `{"\u0069d":"1","k\u0065y":"a"}`,
	`{"id":"1","key":{"a":1}}`, `{"id":"1","key":5}`, `{"id":"1","key":null}`, `{"id":"a/b"}`, `{"id":""}`, `{"id":5}`, `{"id":"1","id":"2"}`, `[]`, `"x"`, `5`, `null`, ``, ` `, `{`, `{"id"}`,
	`{"id":}`, `{"id":"1",}`, `{"id":"1"}x`, `{"a":01}`, `{"a":1.}`, `{"a":-}`, `{"a":1e}`, `{"a":+1}`, `{"a":tru}`, `{"a":"` + "\x01" + `"}`, `{"a":"` + "\xff" + `"}`, `{"a":"\x"}`, `{"a":"\u12g4"}`,
	`{"a":"\`, `{"a":"\u12`, `{"a":"`, `{"a":"` + strings.Repeat("x", 100) + `"}`, strings.Repeat("[", 200), strings.Repeat(`{"a":`, 200), `{"a":"\ud800"}`, `{"a":"\ud800\u0041"}`, `{"a":"\udc00\ud800"}`,
}

func TestDocument(t *testing.T) {
	paths := func(list ...string) (p []keyPath) {
		for _, s := range list {
			path, ok := parseKeyPath(s)
			if !ok {
				t.Fatalf("path %s", s)
			}
			p = append(p, path)
		}
		return p
	}
	for _, c := range []struct {
		in    string
		paths []keyPath
		id    string
		key   string
		body  string
		err   error
	}{
		{in: ` {"id":"1", "key":"a" } `, paths: paths("/key"), id: "1", key: `["a"]`, body: `{"id":"1", "key":"a"`},
		{in: `{"id":"1"}`, paths: paths("/key"), id: "1", key: `[{}]`, body: `{"id":"1"`},
		{in: `{"id":"1","a":{"b":{"c":-0.0}}}`, paths: paths("/a/b/c"), id: "1", key: `[0]`, body: `{"id":"1","a":{"b":{"c":-0.0}}`},
		{in: `{"id":"1","a":{"b":1}}`, paths: paths("/a/b/c", "/a/b", `/"x"/y`), id: "1", key: `[{},1,{}]`, body: `{"id":"1","a":{"b":1}`},
		{in: `{"_rid":"x", "id":"1" ,"_ts":5, "key":"a","_etag":"\"", "_self":{}}`, paths: paths("/key"), id: "1", key: `["a"]`, body: `{"id":"1","key":"a"`},
		{in: `{"id":"\u0031","k\u0065y":true}`, paths: paths("/key"), id: "1", key: `[true]`, body: `{"id":"\u0031","k\u0065y":true`},
		{in: `{"id":"1","key":[1]}`, paths: paths("/key"), id: "1", key: `[{}]`, body: `{"id":"1","key":[1]`},
		{in: `{"id":"1","key":{}}`, paths: paths("/key"), id: "1", key: `[{}]`, body: `{"id":"1","key":{}`},
		{in: `{"id":"a?b"}`, paths: paths("/key"), err: errNoID},
		{in: `{"id":"` + strings.Repeat("x", 1024) + `"}`, paths: paths("/key"), err: errNoID},
		{in: `{"key":1}`, paths: paths("/key"), err: errNoID},
		{in: `{"id":1}`, paths: paths("/key"), err: errNoID},
		{in: `{"id":"1","key":"` + strings.Repeat("x", 2100) + `"}`, paths: paths("/key"), err: errKeyLong},
		{in: `{"id":"1","x":"` + strings.Repeat("x", 2<<20) + `"}`, paths: paths("/key"), err: errTooLarge},
		{in: `[]`, paths: paths("/key"), err: errJSON},
	} {
		var d document
		err := d.read([]byte(c.in), c.paths)
		if c.err != nil {
			if err != c.err {
				t.Errorf("%.60s: %v, want %v", c.in, err, c.err)
			}
			continue
		}
		if err != nil || string(d.id) != c.id || string(d.keyText) != c.key || string(d.body) != c.body {
			t.Errorf("%s: %q %s %s, %v", c.in, d.id, d.keyText, d.body, err)
		}
	}
	for _, bad := range []string{"", "/", "key", "/a//b", "/a/"} {
		if _, ok := parseKeyPath(bad); ok {
			t.Errorf("%q is a path", bad)
		}
	}
}

func FuzzDocument(f *testing.F) {
	for _, d := range documents {
		f.Add([]byte(d))
	}
	path, _ := parseKeyPath("/key")
	f.Fuzz(func(t *testing.T, data []byte) {
		var d document
		if d.read(data, []keyPath{path}) != nil {
			return
		}
		var sent, kept map[string]any
		if err := json.Unmarshal(data, &sent); err != nil {
			t.Fatalf("%q: %v", data, err)
		}
		if err := json.Unmarshal(append(bytes.Clone(d.body), '}'), &kept); err != nil {
			t.Fatalf("%q is kept as %q: %v", data, d.body, err)
		}
		for _, own := range []string{"_rid", "_self", "_etag", "_attachments", "_ts"} {
			delete(sent, own)
		}
		if !reflect.DeepEqual(sent, kept) || sent["id"] != string(d.id) {
			t.Fatalf("%q is kept as %q, id %q", data, d.body, d.id)
		}
	})
}

func FuzzBatch(f *testing.F) {
	for _, op := range []string{
		`{"operationType":"Upsert","partitionKey":"[\"a\"]","resourceBody":{"id":"1","key":"a"}}`, `{"operationType":"Read","id":"1","partitionKey":["a"]}`,
		`{"operationType":"Replace","id":"1","ifMatch":"\"x\"","resourceBody":{"id":"2"}}`, `{"operationType":"Delete","id":5}`, `{"operationType":5,"resourceBody":[]}`, `{}`,
	} {
		f.Add([]byte("["+op+"]"), []byte(`["a"]`))
		f.Add([]byte("["+op+","+op+"]"), []byte(`[{}]`))
	}
	account, err := Open([]ContainerConfig{{Database: "db", Name: "docs", Paths: []string{"/key"}}}, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { account.Close() })
	owner, err := account.Container("db", "docs")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data, key []byte) {
		var b batch
		if b.read(data, owner.paths) != nil {
			return
		}
		if !json.Valid(data) {
			t.Fatalf("%q is read", data)
		}
		c := &call{account: account, buffers: new(buffers)}
		for i := range b.ops {
			p := owner.partitions()[0]
			p.mu.Lock()
			w := resultWriter{owner: owner, out: []byte("[")}
			res := c.bulkOperation(owner, p, &b.ops[i], &w, "db/docs", account.now(), 0)
			w.write(&b.ops[i], &res)
			p.mu.Unlock()
			if out := append(w.out, ']'); !json.Valid(out) {
				t.Fatalf("%q: the result is %q", data, out)
			}
		}
		p := owner.partitions()[0]
		p.mu.Lock()
		defer p.mu.Unlock()
		before := fmt.Sprint(p.order.live, p.bytes)
		w, failed, err := c.asTransaction(owner, p, &b, key)
		if err != nil || failed && fmt.Sprint(p.order.live, p.bytes) != before {
			t.Fatalf("%q: %s, after it was taken back %d %d, %v", data, before, p.order.live, p.bytes, err)
		}
		if out := append(w, ']'); !json.Valid(out) {
			t.Fatalf("%q: the results are %q", data, out)
		}
	})
}

// asTransaction is atomically for a call without request.
func (c *call) asTransaction(owner *Container, p *partition, b *batch, key []byte) (out []byte, failed bool, err error) {
	w, failed, err := c.atomically(owner, p, b, key, true, owner.account.now())
	if err != nil {
		return nil, failed, err
	}
	return w.out, failed, nil
}
