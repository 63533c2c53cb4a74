package azure

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/sluice-go/sluice/autoscale"
)

// deleted is a storage account whose table was deleted after it was opened.
type deleted struct{ requests int }

func (d *deleted) Do(r *http.Request) (*http.Response, error) {
	d.requests++
	status, body := http.StatusNotFound, `{"odata.error": {"code": "TableNotFound", "message": {"lang": "en-US", "value": "The table specified does not exist."}}}`
	if strings.HasSuffix(r.URL.Path, "/Tables") {
		status, body = http.StatusCreated, `{"TableName": "Scaling"}`
	}
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}, "X-Ms-Error-Code": {"TableNotFound"}},
		Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

// TestMissingTable: writes to a table that is missing end soon, with an error that says so.
func TestMissingTable(t *testing.T) {
	account := &deleted{}
	s, err := OpenStore(t.Context(), &Config{Connection: "UseDevelopmentStorage=true", Client: azcore.ClientOptions{Transport: account}})
	if err != nil {
		t.Fatal(err)
	}
	for what, write := range map[string]func() error{
		"a lease": func() error {
			_, err := s.TakeLease(t.Context(), "orders", autoscale.Lease{Owner: "a", Duration: time.Minute})
			return err
		},
		"an outcome": func() error { return s.SetOutcome(t.Context(), "orders", autoscale.Outcome{Number: 1}) },
	} {
		account.requests = 0
		if err := write(); err == nil || !strings.Contains(err.Error(), "of orders: table Scaling: HTTP 404 (Not Found, TableNotFound)") || account.requests > 2*maxOutpaced {
			t.Errorf("%s: %v after %d requests", what, err, account.requests)
		}
	}
}
