package docs

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/sluice-go/sluice/autoscale/config"
	"github.com/sluice-go/sluice/internal/config/strictyaml"
	"github.com/sluice-go/sluice/pipeline"
)

// outerKeys are files that a part of a pipeline file belongs into: their keys, with what each has.
var outerKeys = []map[string]string{
	{"source": hubSource, "partitions": "all", "database": "sqlite:docs.db", "target": tableTarget},
	{"source": hubSource, "partitions": "all", "leases": "{sql: sqlite:docs.db}", "target": "{eventhub: {connection: \"${HUB_CONNECTION_STRING}\", hub: next}}"},
	{"source": hubSource, "partitions": "all", "database": "sqlite:docs.db"},
	{"source": hubSource, "partitions": "all", "leases": "{sql: sqlite:docs.db}"},
	{"source": hubSource, "partitions": "all"},
	{"eventhub": `{connection: "${HUB_CONNECTION_STRING}"}`, "partitions": "all", "database": "sqlite:docs.db"},
}

// aroundScaler is the same for a file of the autoscaler; METRIC is its first metric.
var aroundScaler = map[string]string{
	"name":    "docs",
	"metrics": `{backlog: {sql: {database: "sqlite:docs.db", query: SELECT 1}}}`,
	"target":  "{workers: {pipeline: orders.yaml}}",
	"rule":    `{up: 'avg(METRIC, "10m") > 500', down: 'max(METRIC, "10m") < 300', max: 8}`,
	"state":   "{sqlite: docs.db}",
}

const (
	hubSource   = `{eventhub: {connection: "${HUB_CONNECTION_STRING}", hub: docs}}`
	tableTarget = "{insert: {table: docs, columns: {p: partition, n: sequence}}}"
)

var firstMetric = regexp.MustCompile(`(?m)^metrics:\n(?:  *#.*\n)* +(\w+):`)

// lagOfGroup is in a file of `sluice autoscale keda`: a lag under a name that the user chooses.
var lagOfGroup = regexp.MustCompile(`(?m)^\w+:\n  lag: `)

var topLevel = regexp.MustCompile(`(?m)^([\w]+):`)

// YAML returns what is wrong with a block: with a pipeline file, a file of the autoscaler, or a
// part of one, what check finds; with a file of another program, whether it is YAML. A block whose
// keys are all values of the Helm chart is a file of values, which the chart's own tests check.
func YAML(b Block, values map[string]bool) error {
	keys := Keys(b.Text)
	ofChart := len(keys) > 0
	for key := range keys {
		ofChart = ofChart && values[key]
	}
	path := b.String()
	switch {
	case ofChart, keys["apiVersion"], keys["services"], keys["jobs"], keys["groups"], keys["on"]:
		return strictyaml.Read(path, []byte(b.Text), placeholder, func(strictyaml.Node) {})
	case lagOfGroup.MatchString(b.Text):
		_, err := config.ParseLags(path, []byte(b.Text), placeholder)
		return err
	case keys["metrics"], keys["rule"]:
		metric := "backlog"
		if m := firstMetric.FindStringSubmatch(b.Text); m != nil {
			metric = m[1]
		}
		text := strings.ReplaceAll(completed(b.Text, keys, aroundScaler), "METRIC", metric)
		_, err := config.Parse(path, []byte(text), placeholder)
		return err
	}
	var refused error
	for _, rest := range outerKeys {
		_, err := pipeline.ParseFile(path, []byte(completed(b.Text, keys, rest)), placeholder)
		if err == nil {
			return nil
		}
		if refused == nil || len(err.Error()) < len(refused.Error()) {
			refused = err
		}
	}
	return fmt.Errorf("no file with this part is valid; the one that comes closest: %w", refused)
}

// Keys returns the keys at the top of a YAML text.
func Keys(text string) map[string]bool {
	keys := map[string]bool{}
	for _, m := range topLevel.FindAllStringSubmatch(text, -1) {
		keys[m[1]] = true
	}
	return keys
}

// completed adds to a text the keys that it lacks.
func completed(text string, has map[string]bool, keys map[string]string) string {
	var rest strings.Builder
	for key, value := range keys {
		if !has[key] {
			fmt.Fprintf(&rest, "%s: %s\n", key, value)
		}
	}
	return text + rest.String()
}

// placeholder returns a value of the kind that a variable's name asks for.
func placeholder(name string) (string, bool) {
	switch {
	case strings.Contains(name, "STORAGE"):
		return "DefaultEndpointsProtocol=https;AccountName=contoso;AccountKey=c2VjcmV0;EndpointSuffix=core.windows.net", true
	case strings.Contains(name, "CONNECTION"):
		return "Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=docs;SharedAccessKey=c2VjcmV0", true
	case strings.Contains(name, "DATABASE"):
		return "sqlite:docs.db", true
	case strings.Contains(name, "PARTITIONS"):
		return "balanced", true
	case strings.Contains(name, "BROKERS"):
		return "127.0.0.1:9092", true
	case strings.Contains(name, "NAMESPACE"):
		return "contoso.servicebus.windows.net", true
	case strings.Contains(name, "COSMOS_ENDPOINT"), strings.Contains(name, "URL"):
		return "https://contoso.example.com", true
	case strings.HasSuffix(name, "_ID"):
		return "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/docs/providers/Microsoft.Web/sites/docs", true
	}
	return "c2VjcmV0LW9mLXNpeHRlZW4tYnl0ZXM=", true
}
