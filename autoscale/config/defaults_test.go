package config

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.yaml.in/yaml/v3"
)

// defaultCase is a file in which KEY is the place of a key with a default.
type defaultCase struct {
	file  string
	other string // another value of the key, which the settings must show
}

const (
	withRule = `metrics: {m: {http: {url: "http://127.0.0.1/"}}}
target: {webhook: {url: "http://127.0.0.1/"}}
rule: {target: m, KEY}
`
	withCooldown = `metrics: {m: {http: {url: "http://127.0.0.1/"}}}
target: {webhook: {url: "http://127.0.0.1/"}}
rule: {target: m, cooldown: {KEY}}
`
	withKey = `metrics: {m: {http: {url: "http://127.0.0.1/"}}}
target: {webhook: {url: "http://127.0.0.1/"}}
rule: {target: m}
KEY
`
	withTarget = `metrics: {m: {http: {url: "http://127.0.0.1/"}}}
target: {TARGET}
rule: {target: m}
`
	withMonitor = `metrics: {m: {azure_monitor: {resource: /subscriptions/s/resourceGroups/g/providers/Microsoft.Web/serverfarms/p, metric: CpuPercentage, KEY}}}
target: {webhook: {url: "http://127.0.0.1/"}}
rule: {target: m}
`
	withState = `metrics: {m: {http: {url: "http://127.0.0.1/"}}}
target: {webhook: {url: "http://127.0.0.1/"}}
rule: {target: m}
state: {azure: {connection: "${STORAGE}", KEY}}
`
	inGroup = "subscription: s, resource_group: g, "
)

func target(text string) string { return strings.Replace(withTarget, "TARGET", text, 1) }

var defaultCases = map[string]defaultCase{
	"every":                               {withKey, "2m"},
	"keep":                                {withKey, "24h"},
	"metrics.*.azure_monitor.aggregation": {withMonitor, "maximum"},
	"metrics.*.azure_monitor.window":      {withMonitor, "5m"},
	"target.workers.grace":                {target(`workers: {command: sleep 600, directory: "${DIRECTORY}", KEY}`), "1s"},
	"target.command.timeout":              {target("command: {count: echo 1, scale: echo 1, KEY}"), "2m"},
	"target.kubernetes.kind":              {target(`kubernetes: {name: orders, kubeconfig: "${KUBECONFIG_FILE}", KEY}`), "StatefulSet"},
	"target.containerapp.replicas":        {target("containerapp: {" + inGroup + "app: a, KEY}"), "max"},
	"target.cosmos.unit":                  {target(`cosmos: {endpoint: "https://contoso.documents.azure.com:443/", key: "${COSMOS}", database: d, KEY}`), "400"},
	"rule.min":                            {withRule, "2"},
	"rule.cooldown":                       {withRule, "1m"},
	"rule.cooldown.up":                    {withCooldown, "1m"},
	"rule.points":                         {withRule, "7"},
	"state.azure.table":                   {withState, "Others"},
	"state.azure.published_queues":        {withState, "true"},
}

// The default that the reference states is what the program applies: a file without the key and one
// with the default have the same settings, and one with another value has others.
func TestDefaultsAreThoseOfTheReference(t *testing.T) {
	var keys map[string]struct{ Default string }
	if err := yaml.Unmarshal(described, &keys); err != nil {
		t.Fatal(err)
	}
	for path := range defaultCases {
		if keys[path].Default == "" {
			t.Errorf("%s has no default in the reference", path)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(keys)) {
		stated := keys[path].Default
		if stated == "" {
			continue
		}
		c, known := defaultCases[path]
		if !known {
			t.Errorf("%s: its default is not tested", path)
			continue
		}
		t.Run(path, func(t *testing.T) {
			key := path[strings.LastIndex(path, ".")+1:]
			dir := t.TempDir()
			absent := settings(t, dir, strings.Replace(c.file, "KEY", "", 1))
			if got := settings(t, dir, strings.Replace(c.file, "KEY", key+": "+stated, 1)); !slices.Equal(absent, got) {
				t.Errorf("without the key\n%s\nwith %s\n%s", strings.Join(absent, "\n"), stated, strings.Join(got, "\n"))
			}
			if got := settings(t, dir, strings.Replace(c.file, "KEY", key+": "+c.other, 1)); slices.Equal(absent, got) {
				t.Errorf("%s and %s have the same settings: the test does not see the key", stated, c.other)
			}
		})
	}
}

const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c, user: u, namespace: orders}}]
users: [{name: u, user: {}}]
current-context: c
`

// settings opens a file's metrics, target and state, and returns the values of their fields, and
// what the state asked of its account.
func settings(t *testing.T, dir, text string) (list []string) {
	t.Helper()
	var mu sync.Mutex
	var asked []string
	account := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, r.Method+" "+r.URL.Path+" "+string(body))
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "{}")
	}))
	defer account.Close()
	path := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(path, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	variables := map[string]string{
		"DIRECTORY": filepath.Join(dir, "workers"), "KUBECONFIG_FILE": path, "COSMOS": "aw==",
		"STORAGE": "DefaultEndpointsProtocol=http;AccountName=a;AccountKey=aw==;TableEndpoint=" + account.URL + "/a;QueueEndpoint=" + account.URL + "/a",
	}
	c, err := Parse("orders.yaml", []byte(text), func(name string) (string, bool) { v, ok := variables[name]; return v, ok })
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	opened := []any{c.Resource, c.Retention}
	opts := &Options{Log: slog.New(slog.DiscardHandler), resource: "orders"}
	sources, done, err := c.OpenMetrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = done(context.WithoutCancel(t.Context())) }()
	opened = append(opened, sources["m"])
	target, closeTarget, err := c.target(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	opened = append(opened, target)
	if strings.Contains(text, "azure:") {
		s, closeState, err := c.state(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.queue(t.Context(), "metrics"); err != nil {
			t.Fatal(err)
		}
		if err := closeState(t.Context()); err != nil {
			t.Error(err)
		}
	}
	for i, value := range opened {
		list = fieldsOf(list, fmt.Sprint(i), reflect.ValueOf(value), 0)
	}
	if err := closeTarget(t.Context()); err != nil {
		t.Error(err)
	}
	mu.Lock()
	defer mu.Unlock()
	return append(list, asked...)
}

// fieldsOf adds the scalars in a value of this repository's types, and in those that it points to.
func fieldsOf(list []string, name string, v reflect.Value, depth int) []string {
	const deep = 6
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() && depth < deep {
			return fieldsOf(list, name, v.Elem(), depth+1)
		}
	case reflect.Struct:
		if !strings.HasPrefix(v.Type().PkgPath(), "github.com/sluice-go/sluice/autoscale") {
			return list
		}
		for i := range v.NumField() {
			list = fieldsOf(list, name+"."+v.Type().Field(i).Name, v.Field(i), depth+1)
		}
	case reflect.Slice:
		for i := range v.Len() {
			list = fieldsOf(list, fmt.Sprintf("%s[%d]", name, i), v.Index(i), depth+1)
		}
	case reflect.String, reflect.Bool, reflect.Float64, reflect.Int, reflect.Int64, reflect.Int32:
		return append(list, fmt.Sprintf("%s=%v", name, v))
	}
	return list
}
