package pipeline

import (
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/sluice-go/sluice/internal/config/strictyaml"
)

// defaultsInCode are the fields whose defaults are those of keys: the file, and the field that
// cmp.Or gives its default.
var defaultsInCode = map[string]string{
	"lease.for": "config.go LeaseFor", "assign.every": "config.go AssignEvery",
	"batch": "config.go MaxBatch", "prefetch": "config.go PrefetchBytes", "retry.attempts": "config.go Attempts",
	"retry.min": "config.go RetryMin", "dead_letters.redrive_every": "config.go RedriveEvery", "dead_letters.body_limit": "config.go BodyLimit",
	"checkpoint_every": "atleastonce.go CheckpointEvery", "backlog.events": "atleastonce.go MaxEvents", "backlog.bytes": "atleastonce.go MaxBytes",
	"backlog.age": "atleastonce.go MaxAge", "retry_throttled": "atleastonce.go RetryAfter",
	"source.eventhub.prefetch.events": "eventhub/eventhub.go Prefetch", "source.eventhub.prefetch.bytes": "eventhub/eventhub.go PrefetchBytes",
	"source.eventhub.timeout": "eventhub/eventhub.go Timeout", "source.kafka.prefetch.bytes": "kafka/source.go PrefetchBytes",
	"source.kafka.max_record_batch": "kafka/source.go MaxBatchBytes", "source.kafka.timeout": "kafka/client.go Timeout",
	"source.outbox.timeout":  "outbox/source.go Timeout",
	"source.kafka.client_id": "kafka/client.go ClientID", "target.kafka.timeout": "kafka/client.go Timeout",
	"target.kafka.client_id": "kafka/client.go ClientID", "source.claim_check.max_size": "blobstore/bodies.go MaxBytes",
	"target.eventhub.batch.wait": "sender/sink.go FlushAfter", "target.eventhub.concurrency": "sender/sink.go InFlight",
	"target.eventhub.send_timeout": "sender/sink.go Timeout", "target.servicebus.concurrency": "sender/servicebus.go Writers",
	"target.cosmos.batch.wait": "cosmos/config.go FlushAfter", "target.cosmos.timeout": "cosmos/config.go Timeout",
	"target.cosmos.cached_versions": "cosmos/config.go CachedVersions",
	"target.http.type":              "webhook/config.go Type", "target.http.batch.events": "webhook/config.go MaxEvents",
	"target.http.batch.bytes": "webhook/config.go MaxBytes", "target.http.batch.wait": "webhook/config.go FlushAfter",
	"target.http.concurrency": "webhook/config.go Concurrency", "target.http.timeout": "webhook/config.go Timeout",
	"target.http.retry_after": "webhook/config.go MaxRetryAfter",
}

func TestReferenceHasTheDefaultsOfTheCode(t *testing.T) {
	var keys map[string]struct{ Default string }
	if err := yaml.Unmarshal(described, &keys); err != nil {
		t.Fatal(err)
	}
	for path, where := range defaultsInCode {
		file, field, _ := strings.Cut(where, " ")
		want := defaultOf(t, "../"+file, field)
		text := keys[path].Default
		if text == "" {
			t.Errorf("%s: has no default, the code has %v", path, want)
			continue
		}
		if want.Kind() == constant.String {
			if constant.StringVal(want) != text {
				t.Errorf("%s: default %s, in the code %v", path, text, want)
			}
			continue
		}
		number, _ := constant.Int64Val(want)
		if got := numberOf(t, text); got != number {
			t.Errorf("%s: default %s, in the code %s = %d", path, text, where, number)
		}
	}
}

// numberOf returns a duration, size or number as the reader of a file reads it.
func numberOf(t *testing.T, text string) (number int64) {
	t.Helper()
	if d, err := time.ParseDuration(text); err == nil {
		return int64(d)
	}
	err := strictyaml.Read("default", []byte("v: "+text), nil, func(n strictyaml.Node) {
		n.Object(strictyaml.Keys{"v": func(n strictyaml.Node) {
			var size int
			n.Size(&size, 1<<40)
			number = int64(size)
		}})
	})
	if err != nil {
		t.Fatal(err)
	}
	return number
}

// defaultOf returns what cmp.Or gives a field in a file.
func defaultOf(t *testing.T, path, field string) (value constant.Value) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) != 2 || value != nil {
			return true
		}
		if fn, ok := call.Fun.(*ast.SelectorExpr); !ok || fn.Sel.Name != "Or" {
			return true
		}
		ast.Inspect(call.Args[0], func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == field {
				value = evaluate(call.Args[1])
			}
			return true
		})
		return true
	})
	if value == nil {
		t.Fatalf("%s has no cmp.Or(….%s, constant)", path, field)
	}
	return value
}

// evaluate returns the value of a constant expression of literals and units of time, else nil.
func evaluate(e ast.Expr) constant.Value {
	switch e := e.(type) {
	case *ast.BasicLit:
		return constant.MakeFromLiteral(e.Value, e.Kind, 0)
	case *ast.SelectorExpr:
		units := map[string]time.Duration{"Millisecond": time.Millisecond, "Second": time.Second, "Minute": time.Minute, "Hour": time.Hour}
		if unit, ok := units[e.Sel.Name]; ok {
			return constant.MakeInt64(int64(unit))
		}
	case *ast.BinaryExpr:
		x, y := evaluate(e.X), evaluate(e.Y)
		if x == nil || y == nil {
			return nil
		}
		if e.Op == token.SHL {
			n, _ := strconv.Atoi(y.String())
			return constant.Shift(x, token.SHL, uint(n))
		}
		return constant.BinaryOp(x, e.Op, y)
	}
	return nil
}
