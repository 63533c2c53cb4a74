// Package verify checks whether a real event hub, topic of Kafka, database, storage account, Cosmos
// DB container, HTTP endpoint, or metric or target of an autoscaler behaves as Sluice assumes.
//
// A [System] is one of them. Its checks are a table in the file of its kind: hub.go, kafka.go, database.go,
// sessionlocks.go, blob.go, cosmos.go, http.go, metric.go, scaling.go. A [Runner] first asks every system
// which rights are missing, then does the checks one after the other, each within a bound, and removes all
// that they made. The result is a [Report].
package verify

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// Verdict is what a check found.
type Verdict string

// The verdicts.
const (
	Held      Verdict = "held"      // it is as Sluice assumes
	Differed  Verdict = "differed"  // it is not, and Sluice may lose events, repeat effects, or stop
	Tolerated Verdict = "tolerated" // it is not, and Sluice allows for it
	Undecided Verdict = "undecided" // it could not be checked
	Skipped   Verdict = "skipped"   // it was not asked for
)

// Outcome is the result of one check.
type Outcome struct {
	Verdict  Verdict
	Found    string // what was seen, one sentence
	Next     string // what to do; empty if there is nothing to do
	Measures []Measure
}

// Measure is a number that a check measured.
type Measure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

func held(format string, args ...any) Outcome {
	return Outcome{Verdict: Held, Found: fmt.Sprintf(format, args...)}
}

func differed(format string, args ...any) Outcome {
	return Outcome{Verdict: Differed, Found: fmt.Sprintf(format, args...)}
}

func tolerated(format string, args ...any) Outcome {
	return Outcome{Verdict: Tolerated, Found: fmt.Sprintf(format, args...)}
}

func undecided(format string, args ...any) Outcome {
	return Outcome{Verdict: Undecided, Found: fmt.Sprintf(format, args...)}
}

func skipped(format string, args ...any) Outcome {
	return Outcome{Verdict: Skipped, Found: fmt.Sprintf(format, args...)}
}

// next adds what to do.
func (o Outcome) next(format string, args ...any) Outcome {
	o.Next = fmt.Sprintf(format, args...)
	return o
}

// with adds measures.
func (o Outcome) with(m ...Measure) Outcome {
	o.Measures = append(o.Measures, m...)
	return o
}

// Check is one assumption of Sluice, and how to test it.
type Check struct {
	Name    string        // such as hub.next
	Assumes string        // what Sluice assumes and why, one sentence
	Bound   time.Duration // of Run; 0: a minute
	Run     func(ctx context.Context) Outcome
}

// check is a [Check] in the table of a kind of system.
type check[S any] struct {
	name    string
	assumes string
	bound   time.Duration
	run     func(S, context.Context) Outcome
}

// bind makes the checks of a table those of one system.
func bind[S any](system S, table []check[S]) []Check {
	list := make([]Check, len(table))
	for i, c := range table {
		list[i] = Check{c.name, c.assumes, c.bound, func(ctx context.Context) Outcome { return c.run(system, ctx) }}
	}
	return list
}

// Right is something that the credentials must allow.
type Right struct {
	Name        string
	Granted     bool
	Unreachable bool   // it is not known, because the system did not answer
	Found       string // why it is missing
	Next        string // how to get it
}

// grant records whether the request that needs the right succeeded.
func (r *Right) grant(err error, next string) {
	r.Granted = err == nil
	if err == nil {
		return
	}
	r.Found, r.Next = oneLine(err), next
	if r.Unreachable = unreachable(err); r.Unreachable {
		r.Next = "check host and port, whether the server runs, and the firewalls between"
		if strings.Contains(r.Found, ": check ") { // the error says it
			r.Next = ""
		}
	}
}

// unreachable reports whether a request failed because nobody answered.
func unreachable(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	_, unknown := errors.AsType[*net.DNSError](err)
	return ok && op.Op == "dial" || unknown || errors.Is(err, context.DeadlineExceeded)
}

// System is what is checked: a hub, a topic, a database, a container.
type System interface {
	// Name says what it is, without secrets.
	Name() string
	// Rights tests the rights that the checks need, and changes nothing.
	Rights(ctx context.Context) []Right
	// Creates says what the checks create or do, one sentence each.
	Creates() []string
	// Prepare creates what all checks need. Each thing is in the ledger before it is created.
	Prepare(ctx context.Context, made *Ledger) error
	// Checks are the checks in the order in which they run.
	Checks() []Check
	// Close ends the connections.
	Close(ctx context.Context)
}

// Options are what the checks may do.
type Options struct {
	// ID is the name of this run, in everything that is created. Default: a random one.
	ID string
	// Send is how many events may be sent to the hub. Default: none.
	Send int
	// Scale allows checks that change the number of instances of a target, and back.
	Scale bool
	// Load allows checks that use up the hub's or the container's quota for some seconds.
	Load bool
}

// Named is a check without its function.
type Named struct{ Name, Assumes string }

// Catalog lists all checks of all kinds of system, by kind.
func Catalog() map[string][]Named {
	return map[string][]Named{
		"hub":      names(hubChecks),
		"kafka":    names(kafkaChecks),
		"database": names(databaseChecks),
		"server":   names(sessionChecks),
		"blob":     names(blobChecks),
		"cosmos":   names(cosmosChecks),
		"http":     names(httpChecks),
		"metric":   names(metricChecks),
		"scaling":  names(scalingChecks),
	}
}

func names[S any](table []check[S]) []Named {
	list := make([]Named, len(table))
	for i, c := range table {
		list[i] = Named{c.name, c.assumes}
	}
	return list
}

// oneLine is an error as one line of bounded length.
func oneLine(err error) string {
	const most = 400
	text := strings.ToValidUTF8(strings.Join(strings.Fields(err.Error()), " "), "\uFFFD")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

// failed is the outcome of a check whose own requests failed.
func failed(doing string, err error) Outcome {
	return undecided("%s: %s", doing, oneLine(err)).next("correct what the error names, and run the command again")
}
