package azclient

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
)

type answer func(*http.Request) (*http.Response, error)

func (a answer) Do(r *http.Request) (*http.Response, error) { return a(r) }

func request(ctx context.Context, a answer) error {
	o := Bounded(policy.ClientOptions{Transport: a})
	r, err := runtime.NewRequest(ctx, http.MethodGet, "https://contoso.queue.core.windows.net/")
	if err == nil {
		_, err = runtime.NewPipeline("test", "v0", runtime.PipelineOptions{}, &o).Do(r)
	}
	return err
}

// TestUnanswered: requests that are never answered fail, without a deadline of the
// caller.
func TestUnanswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, attempts := time.Now(), 0
		err := request(t.Context(), func(r *http.Request) (*http.Response, error) {
			attempts++
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		if took := time.Since(began); err == nil || attempts != 4 || took > 3*time.Minute {
			t.Errorf("%d attempts, %v, %v", attempts, took, err)
		}
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestEndless: a body without an end is an error, not memory.
func TestEndless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for size, want := range map[int64]string{MaxBody: "", MaxBody + 1: "larger than 16777216 bytes", 1 << 40: "larger than 16777216 bytes"} {
			err := request(t.Context(), func(r *http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(io.LimitReader(zeros{}, size)), Request: r}, nil
			})
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%d bytes: %v, want %q", size, err, want)
			}
		}
	})
}

// TestPath: a name stays one part of the path.
func TestPath(t *testing.T) {
	for _, c := range []struct {
		kind  string
		names []string // subscription and resource group first
		want  string
	}{
		{"Microsoft.Sql/servers/databases", []string{"s", "g", "h", "d"}, "/subscriptions/s/resourceGroups/g/providers/Microsoft.Sql/servers/h/databases/d"},
		{"Microsoft.Web/serverfarms", []string{"s", "a b", "p/../q?r#"}, "/subscriptions/s/resourceGroups/a%20b/providers/Microsoft.Web/serverfarms/p%2F..%2Fq%3Fr%23"},
		{"Microsoft.Web/serverfarms", []string{"s", "g", ""}, "give a subscription's id, a resource group and the names of Microsoft.Web/serverfarms"},
		{"Microsoft.Web/serverfarms", []string{"s", "..", "p"}, `".." is not a name in Azure`},
	} {
		got, err := Path(c.kind, c.names[0], c.names[1], c.names[2:]...)
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%q\ngot  %s\nwant %s", c.names, got, c.want)
		}
	}
}
