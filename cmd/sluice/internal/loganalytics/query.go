// Package loganalytics reads telemetry from a Log Analytics workspace, in which
// Application Insights keeps it.
package loganalytics

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/monitor/query/azlogs"

	"github.com/sluice-go/sluice/cmd/sluice/internal/telemetry"
)

// Workspace is a Log Analytics workspace. It is safe for concurrent use.
type Workspace struct {
	client *azlogs.Client
	id     string
}

// Config holds what has a default. The zero value is ready to use.
type Config struct {
	Client azlogs.ClientOptions // of Azure's SDK
}

// New makes a workspace of its id, a GUID that the portal's overview shows.
func New(id string, credential azcore.TokenCredential, cfg *Config) (*Workspace, error) {
	if cfg == nil {
		cfg = &Config{}
	}
	client, err := azlogs.NewClient(credential, &cfg.Client)
	if err != nil {
		return nil, fmt.Errorf("client of workspace %s: %w", id, err)
	}
	return &Workspace{client, id}, nil
}

// Query is the query, in Kusto's language, for what [telemetry] needs: sums per hour or less, for
// each version of the SDK. A query of the user can return anything that [telemetry.Read] reads,
// summed up or not.
func Query(filter telemetry.Filter, bin time.Duration) string {
	// Hours, so that days can be those of any zone, and show where they end.
	bin = min(bin, time.Hour)
	return weighed(filter) + fmt.Sprintf(`| summarize items = count(), raw = sum(value), weight = sum(weight), weighted = sum(value * weight), low = sum(value * low), high = sum(value * high),
    squares = sum(value * weight * value * weight), suspect = countif(suspect)
    by time = bin(TimeGenerated, %ds), sdk = SDKVersion
`, int64(bin/time.Second))
}

// weighed is the beginning of a query: the items, each with its value, with the number of items
// that it stands for, and with the limits of that. The rules are those of [telemetry.Item].
func weighed(filter telemetry.Filter) string {
	var b strings.Builder
	b.WriteString("AppEvents\n")
	if filter.Event != "" {
		fmt.Fprintf(&b, "| where Name == %s\n", literal(filter.Event))
	}
	value := "1.0"
	if filter.Measurement != "" {
		value = "todouble(Measurements[" + literal(filter.Measurement) + "])"
	}
	fmt.Fprintf(&b, `| extend value = %s, rate = todouble(Properties["microsoft.sample_rate"])
| where isnotnull(value)
| extend rated = isnotnull(rate) and rate > 0 and rate <= 100
| extend exact = iff(rated, 100.0 / rate, todouble(ItemCount))
| extend suspect = rated and abs(exact - ItemCount) > 0.5000000005
| extend known = rated and (not(suspect) or ItemCount == 1)
| extend weight = iff(known, exact, todouble(ItemCount))
| extend low = iff(known, exact, min_of(exact, max_of(1.0, ItemCount - 0.5))), high = iff(known, exact, max_of(exact, ItemCount + 0.5))
`, value)
	return b.String()
}

// literal is a string of Kusto's language.
func literal(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < ' ' || r == 0x7f:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// Read runs a query over a stretch of time and yields what it returns to add.
func (w *Workspace) Read(ctx context.Context, query string, from, until time.Time, filter telemetry.Filter, add func(telemetry.Item) error) error {
	answer, err := w.client.QueryWorkspace(ctx, w.id, azlogs.QueryBody{
		Query: to.Ptr(query), Timespan: to.Ptr(azlogs.NewTimeInterval(from, until)),
	}, nil)
	if err != nil {
		return fmt.Errorf("query workspace %s: %w", w.id, shortError(err))
	}
	if answer.Error != nil {
		// An incomplete answer would look like a loss.
		return fmt.Errorf("query workspace %s: the answer is incomplete (%s): query a shorter time, or use longer bins", w.id, answer.Error.Code)
	}
	var rows bytes.Buffer
	out := json.NewEncoder(&rows)
	for _, table := range answer.Tables {
		for _, row := range table.Rows {
			if len(row) != len(table.Columns) {
				return errors.New("the workspace's answer has rows that do not match its header")
			}
			object := make(map[string]any, len(row))
			for i, c := range table.Columns {
				object[*c.Name] = row[i]
			}
			if err := out.Encode(object); err != nil {
				return fmt.Errorf("row of the workspace's answer: %w", err)
			}
		}
	}
	if rows.Len() == 0 {
		return nil
	}
	return telemetry.Read(&rows, filter, add)
}

// shortError is the service's refusal on one line. The SDK's text takes a page.
func shortError(err error) error {
	var refusal *azcore.ResponseError
	if !errors.As(err, &refusal) {
		return err
	}
	hint := ""
	switch refusal.StatusCode {
	case http.StatusForbidden:
		hint = ": give the identity the role Log Analytics Reader there"
	case http.StatusNotFound:
		hint = ": check the workspace's id in its overview"
	case http.StatusBadRequest:
		hint = ": check the query"
	}
	return fmt.Errorf("answered %d %s%s", refusal.StatusCode, refusal.ErrorCode, hint)
}
