package check

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"

	"github.com/sluice-go/sluice/blobstore"
	"github.com/sluice-go/sluice/internal/proof/azurite"
	"github.com/sluice-go/sluice/pipeline"
)

// wire edits requests and answers of Azure's SDK.
type wire struct {
	unsigned func(*http.Request) // before the request is signed
	request  func(*http.Request)
	answer   func(*http.Request, *http.Response)
}

func (e *wire) Do(req *http.Request) (*http.Response, error) {
	if e.request != nil {
		e.request(req)
	}
	resp, err := http.DefaultClient.Do(req)
	if err == nil && e.answer != nil {
		e.answer(req, resp)
	}
	return resp, err
}

// beforeSigning is the wire as a policy of the SDK.
type beforeSigning struct{ *wire }

func (e beforeSigning) Do(req *policy.Request) (*http.Response, error) {
	if e.unsigned != nil {
		e.unsigned(req.Raw())
	}
	return req.Next()
}

// openBlob opens a container, over a wire that changes nothing if it is nil.
func openBlob(t *testing.T, server *azurite.Server, container string, over *wire) *blobSystem {
	t.Helper()
	cfg := blobstore.Config{ConnectionString: server.ConnectionString()}
	if over != nil {
		cfg.Client = azcore.ClientOptions{Transport: over, PerCallPolicies: []policy.Policy{beforeSigning{over}}}
	}
	s, err := OpenBlob(BlobAddress{Container: container, Config: cfg}, Options{ID: "test"})
	if err != nil {
		t.Fatal(err)
	}
	b := s.(*blobSystem)
	b.requests = 3
	return b
}

// TestProgressBlobsHold: the container of progress_blobs is checked too, for what a mirror depends
// on.
func TestProgressBlobsHold(t *testing.T) {
	t.Parallel()
	server := azurite.New(t, nil)
	targets := NewTargets(Options{ID: "test"}, nil)
	if err := targets.AddPipeline(pipeline.Connections{ProgressBlobs: &pipeline.BlobConnection{Container: "checkpoints", Connection: server.ConnectionString()}}, ""); err != nil {
		t.Fatal(err)
	}
	if len(targets.Systems) != 1 {
		t.Fatalf("systems: %v", targets.Systems)
	}
	s := targets.Systems[0].(*blobSystem)
	var names []string
	for _, c := range s.Checks() {
		names = append(names, c.Name)
	}
	if !slices.Equal(names, mirrorChecks) || !strings.HasSuffix(s.Name(), "/checkpoints (progress_blobs)") {
		t.Errorf("%s is checked for %q", s.Name(), names)
	}
	allHold(t, s, nil)
	if exists(t, s) {
		t.Error("the container that was created is left")
	}
}

// TestLeasesAndProgressInOneContainer: neither is in the way of the other.
func TestLeasesAndProgressInOneContainer(t *testing.T) {
	t.Parallel()
	server := azurite.New(t, nil)
	targets := NewTargets(Options{ID: "test"}, nil)
	both := &pipeline.BlobConnection{Container: "checkpoints", Connection: server.ConnectionString()}
	if err := targets.AddPipeline(pipeline.Connections{Blob: both, ProgressBlobs: both}, ""); err != nil {
		t.Fatal(err)
	}
	report, err := (&Runner{Systems: targets.Systems}).Run(t.Context())
	things := map[string]bool{}
	for _, c := range tested(report) {
		things[c.Thing] = true
		if c.State != OK {
			t.Errorf("%s is %s: %s", c.Check, c.State, c.Found)
		}
	}
	if err != nil || len(things) != 2 || len(left(report)) > 0 {
		t.Fatalf("systems %v, left behind: %v, %v", things, left(report), err)
	}
}

// exists reports whether the container is still there.
func exists(t *testing.T, s *blobSystem) bool {
	t.Helper()
	_, err := s.client.GetProperties(context.Background(), nil)
	if err != nil && !bloberror.HasCode(err, bloberror.ContainerNotFound) {
		t.Fatal(err)
	}
	return err == nil
}

// blobs lists the blobs of a container.
func blobs(t *testing.T, s *blobSystem) (list []string) {
	t.Helper()
	pages := s.client.NewListBlobsFlatPager(nil)
	for pages.More() {
		page, err := pages.NextPage(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range page.Segment.BlobItems {
			list = append(list, *item.Name)
		}
	}
	return list
}

func TestBlobHolds(t *testing.T) {
	t.Parallel()
	s := openBlob(t, azurite.New(t, nil), "fresh", nil)
	allHold(t, s, nil)
	if exists(t, s) {
		t.Error("the container that was created is left")
	}
}

// Blobs of others stay, and each interruption leaves nothing of ours, also no blob under a lease.
func TestInterruptedBlob(t *testing.T) {
	t.Parallel()
	server := azurite.New(t, nil)
	own := openBlob(t, server, "used", nil)
	if _, err := own.client.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := own.upload(t.Context(), "own", nil); err != nil {
		t.Fatal(err)
	}
	granted(t, own)
	if names := blobs(t, own); len(names) != 1 {
		t.Errorf("asking for rights left %v", names)
	}
	for at := range 12 {
		ctx, cancel := context.WithCancel(t.Context())
		writes := 0
		report, err := (&Runner{Systems: []System{openBlob(t, server, "used", &wire{request: func(req *http.Request) {
			if req.Method == http.MethodPut {
				if writes++; writes == 3*at+2 {
					cancel()
				}
			}
		}})}}).Run(ctx)
		cancel()
		if names := blobs(t, own); err != nil || len(names) != 1 || len(left(report)) > 0 {
			t.Errorf("interrupted at write %d: error %v, blobs %v, left %v", 3*at+2, err, names, left(report))
		}
	}
}

// A signature without a right is named, and nothing is created.
func TestBlobRights(t *testing.T) {
	t.Parallel()
	server := azurite.New(t, nil)
	own := openBlob(t, server, "used", nil)
	if _, err := own.client.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	for method, want := range map[string]string{http.MethodHead: "read blobs", http.MethodPut: "write blobs", http.MethodDelete: "delete blobs"} {
		s := openBlob(t, server, "used", &wire{answer: func(req *http.Request, resp *http.Response) {
			if req.Method == method {
				resp.StatusCode = http.StatusForbidden
				resp.Header.Set("x-ms-error-code", string(bloberror.AuthorizationPermissionMismatch))
			}
		}})
		var missing []string
		for _, r := range s.Rights(t.Context()) {
			if !r.Granted {
				missing = append(missing, r.Name)
			}
		}
		if len(missing) != 1 || missing[0] != want {
			t.Errorf("%s is denied: missing %q", method, missing)
		}
	}
	if names := blobs(t, own); len(names) != 0 {
		t.Errorf("asking for rights left %v", names)
	}
}

func isList(req *http.Request) bool { return req.URL.Query().Get("comp") == "list" }

// Each breaks one thing on the wire; the server is Azurite as it is.
var brokenBlobs = []struct {
	what  string
	check string
	want  State
	wire  func() *wire
}{
	{"If-None-Match is ignored", "blob.create", Failed, func() *wire {
		return &wire{unsigned: func(req *http.Request) { req.Header.Del("If-None-Match") }}
	}},
	{"If-Match is ignored", "blob.match", Failed, func() *wire {
		return &wire{unsigned: func(req *http.Request) { req.Header.Del("If-Match") }}
	}},
	{"a second lease is granted", "blob.lease", Failed, func() *wire {
		return &wire{answer: func(req *http.Request, resp *http.Response) {
			if req.URL.Query().Get("comp") == "lease" && resp.StatusCode == http.StatusConflict {
				resp.StatusCode = http.StatusCreated
			}
		}}
	}},
	{"listings are old", "blob.list", Failed, func() *wire {
		var mu sync.Mutex
		var first []byte
		return &wire{answer: func(req *http.Request, resp *http.Response) {
			if !isList(req) {
				return
			}
			body, _ := io.ReadAll(resp.Body)
			mu.Lock()
			defer mu.Unlock()
			if first == nil && bytes.Contains(body, []byte("<mark>")) {
				first = body
			}
			if first != nil {
				body = first
			}
			replaceBody(resp, func(string) string { return string(body) })
		}}
	}},
	{"a body changes", "blob.deadletters", Failed, func() *wire {
		return &wire{answer: func(req *http.Request, resp *http.Response) {
			if req.Method == http.MethodGet && strings.Contains(req.URL.Path, "/bodies/") {
				replaceBody(resp, func(body string) string { return strings.ReplaceAll(body, "sluice-check", "sluice-altered") })
			}
		}}
	}},
	{"the clock runs fast", "blob.clock", Failed, func() *wire {
		began := time.Now()
		return &wire{answer: func(_ *http.Request, resp *http.Response) {
			resp.Header.Set("Date", began.Add(3*time.Since(began)).UTC().Format(http.TimeFormat))
		}}
	}},
	{"slow answers", "blob.speed", Failed, func() *wire {
		return &wire{request: func(req *http.Request) {
			if req.Method == http.MethodPut {
				_ = pause(req.Context(), 2200*time.Millisecond)
			}
		}}
	}},
}

// The lease checks and those of the fence are the same code as for databases, whose table breaks
// them.
func TestBrokenBlobs(t *testing.T) {
	t.Parallel()
	server := azurite.New(t, nil)
	for _, c := range brokenBlobs {
		t.Run(c.what, func(t *testing.T) {
			s := openBlob(t, server, "broken", c.wire())
			granted(t, s)
			made := &Ledger{}
			if err := s.Prepare(t.Context(), made); err != nil {
				t.Fatal(err)
			}
			expect(t, s, c.check, c.want)
			if err := made.Remove(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
