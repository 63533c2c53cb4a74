package formats

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/proof/freeport"
)

// fakeRegistry answers as the documentation of the two registries says, or as fails has it.
type fakeRegistry struct {
	*httptest.Server
	schemas       map[string]string // the answer to each path
	authorization string
	requests      atomic.Int64
	fails         atomic.Pointer[http.HandlerFunc]
}

func newFakeRegistry(t *testing.T, start func(*httptest.Server)) *fakeRegistry {
	f := &fakeRegistry{schemas: map[string]string{}}
	f.Server = freeport.Unstarted(t, f)
	start(f.Server)
	t.Cleanup(f.Close)
	return f
}

func (f *fakeRegistry) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.requests.Add(1)
	if fails := f.fails.Load(); fails != nil {
		(*fails)(w, r)
		return
	}
	azure := strings.HasPrefix(r.URL.Path, "/$schemaGroups/$schemas/") && r.URL.RawQuery == "api-version=2022-10"
	text, ok := f.schemas[r.URL.EscapedPath()]
	switch {
	case r.Header.Get("Authorization") != f.authorization:
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"error_code":40101,"message":"Unauthorized"}`)
	case !ok && azure:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"error":{"code":"ItemNotFound","message":"Schema id does not exist."}}`)
	case !ok:
		w.Header().Set("Content-Type", "application/vnd.schemaregistry.v1+json")
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"error_code":40403,"message":"Schema not found"}`)
	case azure:
		w.Header().Set("Content-Type", "application/json; serialization=Avro")
		w.Header().Set("Schema-Id", r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:])
		fmt.Fprint(w, text)
	default:
		w.Header().Set("Content-Type", "application/vnd.schemaregistry.v1+json")
		fmt.Fprint(w, text)
	}
}

// fail makes the registry answer so; nil: as it should.
func (f *fakeRegistry) fail(answer http.HandlerFunc) {
	if answer == nil {
		f.fails.Store(nil)
		return
	}
	f.fails.Store(&answer)
}

// confluentAnswer is what Confluent's registry answers.
func confluentAnswer(kind schemaKind, schema string, references ...string) string {
	answer := map[string]any{"schema": schema}
	if kind != kindAvro { // which the registry leaves out
		answer["schemaType"] = kind
	}
	var list []map[string]any
	for i, subject := range references {
		name, _, _ := strings.Cut(subject, "@")
		list = append(list, map[string]any{"name": name, "subject": subject, "version": i + 1})
	}
	if list != nil {
		answer["references"] = list
	}
	text, _ := json.Marshal(answer)
	return string(text)
}

func framed(id byte, body string) *sluice.Event {
	return &sluice.Event{Body: []byte("\x00\x00\x00\x01" + string(id) + body)}
}

func TestConfluent(t *testing.T) {
	f := newFakeRegistry(t, (*httptest.Server).Start)
	f.authorization = "Basic YXBwOnNlY3JldA==" // app:secret
	for path, answer := range map[string]string{
		"/schemas/ids/257":                          confluentAnswer(kindAvro, `{"type":"record","name":"r","fields":[{"name":"a","type":"int"}]}`),
		"/schemas/ids/258":                          confluentAnswer(kindAvro, `{"type":"record","name":"s","fields":[{"name":"t","type":"x.T"},{"name":"u","type":"x.U"}]}`, "x.T@1", "x.U@2"),
		"/subjects/x.T@1/versions/1":                confluentAnswer(kindAvro, `{"type":"record","name":"T","namespace":"x","fields":[{"name":"u","type":"x.U"}]}`, "x.U@1"),
		"/subjects/x.U@1/versions/1":                confluentAnswer(kindAvro, `{"type":"enum","name":"U","namespace":"x","symbols":["A","B"]}`),
		"/schemas/ids/259":                          confluentAnswer("JSON", `{}`),
		"/schemas/ids/260":                          confluentAnswer(kindAvro, `{"type":"recrod"}`),
		"/schemas/ids/261":                          confluentAnswer(kindProtobuf, flightProto, "common/place.proto"),
		"/subjects/common%2Fplace.proto/versions/1": confluentAnswer(kindProtobuf, placeProto),
		"/schemas/ids/262":                          confluentAnswer(kindProtobuf, `syntax = "proto3"; import "other.proto";`),
	} {
		f.schemas[path] = answer
	}
	registry := newConfluent(t, f.URL+"/", &ConfluentConfig{User: "app", Password: "secret"})
	reader := mustAvro(t, `{"type":"record","name":"r","fields":[{"name":"a","type":"long"},{"name":"b","type":"string","default":"x"}]}`)
	own, read, proto := New(&Config{Encoding: AvroFrom(registry, nil)}), New(&Config{Encoding: AvroFrom(registry, reader)}), New(&Config{Encoding: ProtobufFrom(registry)})
	place := string(field(nil, 1, "SAN"))
	for _, c := range []struct {
		d    *Decoder
		e    *sluice.Event
		want string
	}{
		{own, framed(1, long(5)), `{"a":5}`},
		{read, framed(1, long(5)), `{"a":5,"b":"x"}`},
		{own, framed(2, long(0)+long(1)), `{"t":{"u":"A"},"u":"B"}`},
		{proto, framed(5, "\x00"+string(field(nil, 5, place))), `{"flightNumber":"","delay":0,"id":"0","origin":{"code":"SAN"},"legs":[],"prices":{},"raw":"","status":"SCHEDULED"}`},
		{proto, framed(5, long(2)+long(0)+long(0)+"\x10\x07"), `{"miles":"7"}`},

		{own, framed(9, "x"), "decode the body: the schema registry " + f.URL + " does not have the schema 265 that it names"},
		{own, &sluice.Event{Body: []byte(`{"a":1}`)}, "decode the body: it does not begin with the header of a schema registry, a zero byte and the id of the schema"},
		{own, &sluice.Event{Body: []byte("\x00\x00\x00")}, "decode the body: it does not begin with the header of a schema registry, a zero byte and the id of the schema"},
		{own, framed(3, "x"), "decode the body: its schema 259 is not of the kind AVRO, but JSON"},
		{own, framed(4, "x"), "decode the body: its schema 260: "},
		{own, framed(1, ""), "decode the body: it does not fit the schema: "},
		{read, framed(2, ""), "decode the body: its schema 258: the schema that it was written with does not resolve to the schema of the file: "},
		{proto, framed(1, "\x00"), "decode the body: its schema 257 is not of the kind PROTOBUF, but AVRO"},
		{proto, framed(5, ""), "decode the body: its header does not say which message of the schema it is"},
		{proto, framed(5, long(1<<40)), "decode the body: its header does not say which message of the schema it is"},
		{proto, framed(5, long(2)+long(0)), "decode the body: its header does not say which message of the schema it is"},
		{proto, framed(5, long(1)+long(7)), "decode the body: its header names message [7], which its schema does not have"},
		{proto, framed(6, "\x00"), "decode the body: its schema 262: "},
	} {
		out, err := c.d.Event(t.Context(), c.e)
		switch {
		case errors.Is(err, sluice.ErrOutage):
			t.Errorf("%q: an outage: %v", c.e.Body, err)
		case err != nil && (!strings.HasPrefix(err.Error(), c.want) || strings.Contains(err.Error(), "\n")):
			t.Errorf("%q: got  %v\nwant %s", c.e.Body, err, c.want)
		case err == nil && compact(t, out.Body) != c.want:
			t.Errorf("%q: got  %s\nwant %s", c.e.Body, out.Body, c.want)
		}
	}
	if err := own.Check(t.Context()); err != nil {
		t.Error(err)
	}
	bare := New(&Config{Encoding: JSONFrom(registry), MaxSize: 10})
	if out, err := bare.Event(t.Context(), framed(9, `{"a":5}`)); err != nil || string(out.Body) != `{"a":5}` || out.ContentType != "application/json" {
		t.Errorf("%+v, %v", out, err)
	}
	for _, e := range []*sluice.Event{framed(9, `"12345678910"`), {Body: []byte(`{"a":5}`)}} {
		if _, err := bare.Event(t.Context(), e); err == nil || errors.Is(err, sluice.ErrOutage) {
			t.Errorf("%q: %v", e.Body, err)
		}
	}
	f.schemas["/schemas/ids/263"] = confluentAnswer(kindAvro, `"int"`, "gone")
	_, err := own.Event(t.Context(), framed(7, ""))
	if want := "decode the body: schema registry " + f.URL + ": GET /subjects/gone/versions/1: 404 Not Found, error code 40403"; !errors.Is(err, sluice.ErrOutage) || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// token is a credential with one token, or an error.
type token struct {
	text string
	err  error
}

func (k token) GetToken(_ context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	if len(o.Scopes) != 1 || o.Scopes[0] != "https://eventhubs.azure.net/.default" {
		return azcore.AccessToken{}, fmt.Errorf("scopes %v", o.Scopes)
	}
	return azcore.AccessToken{Token: k.text}, k.err
}

func trusting(f *fakeRegistry) *tls.Config {
	return f.Client().Transport.(*http.Transport).TLSClientConfig
}

func TestAzure(t *testing.T) {
	f := newFakeRegistry(t, (*httptest.Server).StartTLS)
	f.authorization = "Bearer canary"
	const id = "0123456789abcdef0123456789abcdef"
	f.schemas["/$schemaGroups/$schemas/"+id] = `{"type":"record","name":"r","fields":[{"name":"a","type":"int"}]}`
	namespace := strings.TrimPrefix(f.URL, "https://")
	d := New(&Config{Encoding: AvroFrom(NewAzure(namespace, token{text: "canary"}, trusting(f)), nil)})
	for content, want := range map[string]string{
		"avro/binary+" + id: `{"a":5}`,
		"avro/binary+01234567-89AB-CDEF-0123-456789ABCDEF": `{"a":5}`,
		"avro/binary+" + strings.Repeat("0", 32):           "decode the body: the schema registry " + f.URL + " does not have the schema 00000000000000000000000000000000 that it names",
		"avro/binary":                                      `decode the body: its content type "avro/binary" is not avro/binary+ID, with the id of the schema`,
		"avro/binary+../../x":                              `decode the body: its content type "avro/binary+../../x" is not avro/binary+ID, with the id of the schema`,
		"":                                                 `decode the body: its content type "" is not avro/binary+ID, with the id of the schema`,
	} {
		out, err := d.Event(t.Context(), &sluice.Event{Body: []byte(long(5)), ContentType: content})
		switch {
		case err != nil && (err.Error() != want || errors.Is(err, sluice.ErrOutage)):
			t.Errorf("got  %v\nwant %s", err, want)
		case err == nil && string(out.Body) != want:
			t.Errorf("got  %s\nwant %s", out.Body, want)
		}
	}
	if err := d.Check(t.Context()); err != nil {
		t.Error(err)
	}
	f.fail(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Schema-Id", id)
		w.Header().Set("Content-Type", "application/json; serialization=Json")
	})
	d = New(&Config{Encoding: AvroFrom(NewAzure(namespace, token{text: "canary"}, trusting(f)), nil)})
	_, err := d.Event(t.Context(), &sluice.Event{ContentType: "avro/binary+" + id})
	if err == nil || errors.Is(err, sluice.ErrOutage) || !strings.Contains(err.Error(), "is not of the kind AVRO, but application/json;serialization=json") {
		t.Errorf("got %v", err)
	}
}

// TestRegistryOutage: whatever a registry answers but a schema, or that it has none, is an outage.
// The event after it asks again.
func TestRegistryOutage(t *testing.T) {
	const id = "0123456789abcdef0123456789abcdef"
	status := func(code int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code); fmt.Fprint(w, body) }
	}
	confluent, azure := newFakeRegistry(t, (*httptest.Server).Start), newFakeRegistry(t, (*httptest.Server).StartTLS)
	confluent.schemas["/schemas/ids/257"] = confluentAnswer(kindAvro, `"int"`)
	azure.schemas["/$schemaGroups/$schemas/"+id] = `"int"`
	azure.authorization = "Bearer canary"
	for _, of := range []struct {
		registry *fakeRegistry
		encoding Encoding
		event    *sluice.Event
	}{
		{confluent, AvroFrom(newConfluent(t, confluent.URL, &ConfluentConfig{}), nil), framed(1, long(5))},
		{azure, AvroFrom(NewAzure(strings.TrimPrefix(azure.URL, "https://"), token{text: "canary"}, trusting(azure)), nil), &sluice.Event{Body: []byte(long(5)), ContentType: "avro/binary+" + id}},
	} {
		d := New(&Config{Encoding: of.encoding})
		for name, c := range map[string]struct {
			answer http.HandlerFunc
			want   string
		}{
			"500":           {status(500, `{"error_code":50001}`), "500 Internal Server Error"},
			"503":           {status(503, ""), "503 Service Unavailable"},
			"429":           {status(429, ""), "429 Too Many Requests"},
			"401":           {status(401, `{"error_code":40101}`), "401 Unauthorized: check the credentials of source.format.registry"},
			"403":           {status(403, ""), "403 Forbidden: check the credentials of source.format.registry"},
			"another's 404": {status(404, "<html>404"), "404 Not Found, which is not the answer of a schema registry: check the address in source.format.registry"},
			"a gateway's":   {status(404, `{"message":"no Route matched"}`), "404 Not Found, which is not the answer of a schema registry: check the address in source.format.registry"},
			"JSON's 404":    {status(404, "{}"), "404 Not Found, which is not the answer of a schema registry: check the address in source.format.registry"},
			"a page":        {status(200, "<html>sign in"), "200 OK, which is not the answer of a schema registry: check the address in source.format.registry"},
			"an object":     {status(200, "{}"), "200 OK, which is not the answer of a schema registry: check the address in source.format.registry"},
			"a redirect":    {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/other", http.StatusFound) }, "302 Found"},
			"too large":     {status(200, strings.Repeat(" ", maxSchemaSize+1)), "the answer has more than 4194304 bytes"},
			"cut":           {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "EOF"},
			"cut within": {func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Length", "100")
				w.Write([]byte(`{"schema":`))
			}, "the answer: unexpected EOF"},
		} {
			of.registry.fail(c.answer)
			_, err := d.Event(t.Context(), of.event)
			if !errors.Is(err, sluice.ErrOutage) || !strings.HasSuffix(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "decode the body: schema registry "+of.registry.URL+": GET /") {
				t.Errorf("%s: got  %v\nwant %s", name, err, c.want)
			}
			if err := d.Check(t.Context()); err == nil {
				t.Errorf("%s: the check finds nothing", name)
			}
		}
		of.registry.fail(nil)
		for range 3 {
			before := of.registry.requests.Load()
			if out, err := d.Event(t.Context(), of.event); err != nil || string(out.Body) != "5" {
				t.Errorf("after the outage: %v", err)
			}
			if before > of.registry.requests.Load() {
				t.Error("no request")
			}
		}
		of.registry.Close()
		if out, err := d.Event(t.Context(), of.event); err != nil || string(out.Body) != "5" {
			t.Errorf("a known schema needs the registry: %v", err)
		}
		if err := d.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("check: %v", err)
		}
	}
	d := New(&Config{Encoding: AvroFrom(NewAzure("127.0.0.1:1", token{err: errors.New("no\nlogin")}, nil), nil)})
	if err := d.Check(t.Context()); err == nil || err.Error() != "schema registry https://127.0.0.1:1: no token: no login" {
		t.Errorf("got %v", err)
	}
}

// TestRegistrySlow: a request ends with its context, as an outage.
func TestRegistrySlow(t *testing.T) {
	f := newFakeRegistry(t, (*httptest.Server).Start)
	asked := make(chan struct{}, 1)
	f.fail(func(_ http.ResponseWriter, r *http.Request) { asked <- struct{}{}; <-r.Context().Done() })
	d := New(&Config{Encoding: AvroFrom(newConfluent(t, f.URL, &ConfluentConfig{Token: "t"}), nil)})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	if _, err := d.Event(ctx, framed(1, "")); !errors.Is(err, sluice.ErrOutage) {
		t.Errorf("got %v", err)
	}
}

// TestSchemasAreKept: one request for each schema, however many events name it at the same time;
// the answer that there is none holds for a while; and no more schemas are kept than there should
// be.
func TestSchemasAreKept(t *testing.T) {
	f := newFakeRegistry(t, (*httptest.Server).Start)
	f.schemas["/schemas/ids/257"] = confluentAnswer(kindAvro, `"int"`)
	encoding := AvroFrom(newConfluent(t, f.URL, &ConfluentConfig{}), nil).(*avroFrom)
	d := New(&Config{Encoding: encoding})
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if _, err := d.Event(t.Context(), framed(1, long(5))); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for range 3 {
		if _, err := d.Event(t.Context(), framed(2, "")); err == nil {
			t.Error("a schema that does not exist")
		}
	}
	if n := f.requests.Load(); n != 2 {
		t.Errorf("%d requests", n)
	}
	f.schemas["/schemas/ids/258"] = confluentAnswer(kindAvro, `"null"`)
	encoding.schemas.mu.Lock()
	if left := time.Until(encoding.schemas.kept["258"].expires); left <= 0 || left > forgetAfter {
		t.Errorf("a schema that does not exist is asked for again in %v", left)
	}
	encoding.schemas.kept["258"].expires = time.Now().Add(-1)
	encoding.schemas.mu.Unlock()
	if _, err := d.Event(t.Context(), framed(2, "")); err != nil {
		t.Errorf("registered since: %v", err)
	}
	for i := range maxSchemas + 10 {
		encoding.schemas.get(t.Context(), fmt.Sprint(1000+i))
	}
	if n := len(encoding.schemas.kept); n != maxSchemas {
		t.Errorf("%d schemas are kept", n)
	}
}

// TestReferenceBounds: schemas that refer to each other without end are the fault of the event that
// names them.
func TestReferenceBounds(t *testing.T) {
	f := newFakeRegistry(t, (*httptest.Server).Start)
	f.schemas["/schemas/ids/257"] = confluentAnswer(kindAvro, `"int"`, "0")
	for i := range 100 {
		f.schemas[fmt.Sprintf("/subjects/%d/versions/1", i)] = confluentAnswer(kindAvro, `"int"`, fmt.Sprint(i+1))
	}
	_, err := New(&Config{Encoding: AvroFrom(newConfluent(t, f.URL, &ConfluentConfig{}), nil)}).Event(t.Context(), framed(1, ""))
	if err == nil || errors.Is(err, sluice.ErrOutage) || !strings.Contains(err.Error(), "refers to more than 200 others, or over more than 20 levels") {
		t.Errorf("got %v", err)
	}
	if n := f.requests.Load(); n > 30 {
		t.Errorf("%d requests", n)
	}
}

// TestReferenceSize: what a schema refers to counts as a part of it.
func TestReferenceSize(t *testing.T) {
	f := newFakeRegistry(t, (*httptest.Server).Start)
	f.schemas["/schemas/ids/257"] = confluentAnswer(kindAvro, `"int"`, "0", "1", "2", "3", "4")
	for i := range 5 {
		f.schemas[fmt.Sprintf("/subjects/%d/versions/%d", i, i+1)] = confluentAnswer(kindAvro, `"int"`+strings.Repeat(" ", 1<<20))
	}
	_, err := New(&Config{Encoding: AvroFrom(newConfluent(t, f.URL, &ConfluentConfig{}), nil)}).Event(t.Context(), framed(1, ""))
	if err == nil || errors.Is(err, sluice.ErrOutage) || !strings.Contains(err.Error(), "its schema and those that it refers to have more than 4194304 bytes") {
		t.Errorf("got %v", err)
	}
	if n := f.requests.Load(); n != 5 { // the schema, and as many as have room
		t.Errorf("%d requests", n)
	}
}

// TestSchemaTexts: the texts of the schemas that are kept are bounded together.
func TestSchemaTexts(t *testing.T) {
	encoding := AvroFrom(fixed{&registered{kind: kindAvro, text: `"int"` + strings.Repeat(" ", 1<<20)}}, nil).(*avroFrom)
	for i := range 40 {
		if _, err := encoding.schemas.get(t.Context(), fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
		if encoding.schemas.kept[fmt.Sprint(i)] == nil {
			t.Fatal("the schema that was loaded is not kept")
		}
	}
	if kept, texts := len(encoding.schemas.kept), encoding.schemas.texts; kept != 15 || texts != 15*(1<<20+5) {
		t.Errorf("%d schemas of %d bytes are kept", kept, texts)
	}
}

func newConfluent(t testing.TB, base string, config *ConfluentConfig) Registry {
	t.Helper()
	r, err := NewConfluent(base, config)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRegistryURL(t *testing.T) {
	for text, ok := range map[string]bool{"https://r.example.com": true, "http://localhost:8081/path/": true, "r.example.com": false, "ftp://r": false, "https://u:p@r": false, "https://r?x=y": false, "https://r#x": false} {
		if err := checkRegistryURL(text); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// FuzzConfluent: whatever a body begins with, and whatever the registry has, nothing fails
// otherwise than with an error.
func FuzzConfluent(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x01\x01\x00abc"), true, `syntax = "proto3"; message A { int32 a = 1; }`)
	f.Add([]byte("\x00\x00\x00\x01\x01\x02"), false, `"int"`)
	f.Fuzz(func(t *testing.T, body []byte, protobuf bool, schema string) {
		s := &registered{kind: kindAvro, text: schema}
		e := AvroFrom(fixed{s}, nil)
		if protobuf {
			s.kind, e = kindProtobuf, ProtobufFrom(fixed{s})
		}
		checkJSON(t, e, body)
	})
}

// fixed is a registry with one schema for all ids.
type fixed struct{ found *registered }

func (fixed) split(body []byte, contentType string) (string, []byte, error) {
	return confluent{}.split(body, contentType)
}

func (f fixed) schema(context.Context, string) (*registered, error) { return f.found, nil }

func (fixed) check(context.Context) error { return nil }
