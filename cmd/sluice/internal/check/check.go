// Package check answers whether a pipeline, or one of the systems it uses, will work.
//
// There are three depths. [OfFile] reads the file. An [Examiner] connects to the parts of a
// pipeline, in seconds and without effect: whether they answer, what the credentials allow, how far
// the clocks differ, when certificates end, where the partitions stand. A [Runner] writes into
// names of its own, to test one after the other what Sluice assumes of a [System]: an event hub, a
// topic of Kafka, a database, a container of blobs or of Cosmos DB, an HTTP endpoint, a metric or
// target of an autoscaler. It first asks each system which rights are missing, and removes at the
// end what it made.
//
// All three give a [List] of findings. The checks of a kind of system are a table in the file of
// its kind: hub.go, kafka.go, database.go, sessionlocks.go, blob.go, cosmos.go, http.go, metric.go,
// scaling.go.
package check

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"
)

// State is what a finding means.
type State string

// The states.
const (
	OK        State = "ok"        // it is as Sluice needs it
	Warning   State = "warning"   // it works, and an operator should look at it; or Sluice allows for it
	Failed    State = "failed"    // it does not work; or Sluice may lose events, repeat effects, or stop
	Undecided State = "undecided" // it could not be checked
	Skipped   State = "skipped"   // it was not asked for
)

// severities are the states in the order in which a worse one counts.
var severities = []State{"", Skipped, OK, Warning, Undecided, Failed}

func severity(s State) int { return slices.Index(severities, s) }

// Finding is the result of one check.
type Finding struct {
	Stage    string    `json:"stage,omitempty"` // empty: the file has one pipeline only
	Check    string    `json:"check"`
	Thing    string    `json:"thing,omitempty"` // what was checked, without secrets; empty: Found names it
	State    State     `json:"state"`
	Found    string    `json:"found"`             // one line
	Next     string    `json:"next,omitempty"`    // what to do; empty if there is nothing to do
	Assumes  string    `json:"assumes,omitempty"` // what Sluice assumes and why, one sentence
	Measures []Measure `json:"measures,omitempty"`
	Seconds  float64   `json:"seconds,omitempty"`
}

// Measure is a number that a check measured.
type Measure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

func found(state State, check, format string, args ...any) Finding {
	return Finding{Check: check, State: state, Found: shorten(fmt.Sprintf(format, args...))}
}

func held(format string, args ...any) Finding      { return found(OK, "", format, args...) }
func differed(format string, args ...any) Finding  { return found(Failed, "", format, args...) }
func tolerated(format string, args ...any) Finding { return found(Warning, "", format, args...) }
func undecided(format string, args ...any) Finding { return found(Undecided, "", format, args...) }
func skipped(format string, args ...any) Finding   { return found(Skipped, "", format, args...) }

// failed is the finding of a check whose own requests failed.
func failed(doing string, err error) Finding {
	return undecided("%s: %s", doing, oneLine(err)).next("correct what the error names, and run the command again")
}

// next adds what to do.
func (f Finding) next(format string, args ...any) Finding {
	f.Next = fmt.Sprintf(format, args...)
	return f
}

// subject names what was checked.
func (f Finding) subject(thing string) Finding {
	f.Thing = thing
	return f
}

// with adds measures.
func (f Finding) with(m ...Measure) Finding {
	f.Measures = append(f.Measures, m...)
	return f
}

// shorten is a text of bounded length on one line.
func shorten(text string) string {
	const most = 500
	text = strings.ToValidUTF8(strings.Join(strings.Fields(text), " "), "\uFFFD")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

func oneLine(err error) string { return shorten(err.Error()) }

// bounded runs fn on a goroutine of its own, until ctx ends and a grace in which it can still
// return. One that does not return is left behind: the process is about to end.
func bounded[T any](ctx context.Context, grace time.Duration, fn func(context.Context) T) (result T, returned bool) {
	done := make(chan T, 1)
	go func() { done <- fn(ctx) }()
	select {
	case result = <-done:
		return result, true
	case <-ctx.Done():
	}
	select {
	case result = <-done:
		return result, true
	case <-time.After(grace):
		return result, false
	}
}

// Check is one assumption of Sluice, and how to test it.
type Check struct {
	Name    string        // such as hub.next
	Assumes string        // what Sluice assumes and why, one sentence
	Bound   time.Duration // of Run; 0: a minute
	Run     func(ctx context.Context) Finding
}

// check is a [Check] in the table of a kind of system.
type check[S any] struct {
	name    string
	assumes string
	bound   time.Duration
	run     func(S, context.Context) Finding
}

// bind makes the checks of a table those of one system.
func bind[S any](system S, table []check[S]) []Check {
	list := make([]Check, len(table))
	for i, c := range table {
		list[i] = Check{c.name, c.assumes, c.bound, func(ctx context.Context) Finding { return c.run(system, ctx) }}
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

// askRight reads a server's answer whether it grants a right. found says why one is missing.
func askRight(name string, answer interface{ Scan(into ...any) error }, found, next string) Right {
	r := Right{Name: name}
	var granted bool
	err := answer.Scan(&granted)
	if err == nil && !granted {
		err = errors.New(found)
	}
	r.grant(err, next)
	return r
}

// unreachable reports whether a request failed because nobody answered.
func unreachable(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	_, unknown := errors.AsType[*net.DNSError](err)
	return ok && op.Op == "dial" || unknown || errors.Is(err, context.DeadlineExceeded)
}

// rightFindings is one finding for the rights that are granted, if none is missing, and otherwise
// one for each that is missing, or for a system that does not answer.
func rightFindings(thing string, rights []Right, missing State) (list List) {
	var granted []string
	for _, r := range rights {
		switch {
		case r.Granted:
			granted = append(granted, r.Name)
		case r.Unreachable:
			return List{found(Failed, "reached", "cannot be reached: %s", r.Found).next("%s", r.Next).subject(thing)}
		default:
			list = append(list, found(missing, "rights", "may not %s: %s", r.Name, r.Found).next("%s", r.Next).subject(thing))
		}
	}
	if len(list) == 0 && len(granted) > 0 {
		list = List{found(OK, "rights", "may %s", strings.Join(granted, "; ")).subject(thing)}
	}
	return list
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
