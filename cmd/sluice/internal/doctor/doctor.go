// Package doctor examines a pipeline in seconds and without effect: whether its parts answer, what its
// credentials allow, how far the clocks differ, when certificates end, and where its partitions stand.
//
// An [Examiner] runs all checks at the same time, each within a bound. The result is a list of [Finding].
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-go/sluice/cmd/sluice/internal/verify"
	"github.com/sluice-go/sluice/internal/strictyaml"
	"github.com/sluice-go/sluice/pipeline"
)

// State is what a finding means for the pipeline.
type State string

// The states.
const (
	OK      State = "ok"
	Warning State = "warning" // it runs, and an operator should look at this
	Failed  State = "failed"  // it does not run, or not for long
)

// Finding is the result of one check.
type Finding struct {
	Stage string `json:"stage,omitempty"` // empty: the file has one pipeline only
	Check string `json:"check"`
	State State  `json:"state"`
	Found string `json:"found"`          // one line
	Next  string `json:"next,omitempty"` // what to do; empty if there is nothing to do
}

func (f Finding) next(format string, args ...any) Finding {
	f.Next = fmt.Sprintf(format, args...)
	return f
}

func found(state State, check, format string, args ...any) Finding {
	return Finding{Check: check, State: state, Found: oneLine(fmt.Sprintf(format, args...))}
}

// Examiner examines the stages of a pipeline file. The zero value is ready to use.
type Examiner struct {
	// Within bounds each check. Default: 10 s.
	Within time.Duration
	// Now is the clock that others are compared with. Default: time.Now.
	Now func() time.Time
}

// Together they are less than the 15 seconds that `sluice doctor` promises.
const (
	// defaultWithin bounds each check.
	defaultWithin = 10 * time.Second
	// grace is how long a check may take to return after its time is up.
	grace = 2 * time.Second
	// closeWithin is how long connections may take to close.
	closeWithin = grace / 2
)

// check is one check of a stage. It may have several findings, or none if another check reports the cause.
type check struct {
	name string
	run  func(ctx context.Context) []Finding
}

// Examine checks all stages at the same time. The findings are in the order of the stages.
func (e Examiner) Examine(ctx context.Context, file string, stages []*pipeline.Pipeline) []Finding {
	e.Within = cmp.Or(e.Within, defaultWithin)
	if e.Now == nil {
		e.Now = time.Now
	}
	var results []chan []Finding
	var used []*verify.Targets
	for _, p := range stages {
		s := newStage(e, file, p, len(stages) > 1)
		used = append(used, s.targets)
		for _, c := range s.checks() {
			result := make(chan []Finding, 1)
			results = append(results, result)
			go func() { result <- s.bounded(ctx, c) }()
		}
	}
	var all []Finding
	for _, result := range results {
		all = append(all, <-result...)
	}
	closeAll(used)
	return all
}

// closeAll closes connections. Those that do not close soon end with the process.
func closeAll(used []*verify.Targets) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		for _, t := range used {
			t.Close()
		}
	}()
	select {
	case <-closed:
	case <-time.After(closeWithin):
	}
}

// bounded runs a check within its bound. One that does not return is left behind: the process is about
// to end.
func (s *stage) bounded(ctx context.Context, c check) []Finding {
	ctx, cancel := context.WithTimeout(ctx, s.Within)
	defer cancel()
	done := make(chan []Finding, 1)
	go func() { done <- c.run(ctx) }()
	var list []Finding
	select {
	case list = <-done:
	case <-ctx.Done():
		select {
		case list = <-done:
		case <-time.After(grace):
			list = []Finding{found(Failed, c.name, "no answer within %v", s.Within).next("check whether the server runs, and the network and the firewalls between")}
		}
	}
	for i := range list {
		list[i].Stage, list[i].Check = s.name, cmp.Or(list[i].Check, c.name)
		list[i].Found, list[i].Next = s.targets.Redact(list[i].Found), s.targets.Redact(list[i].Next)
	}
	return list
}

// OfFile returns the findings about a file that cannot be read or is not valid.
func OfFile(err error) []Finding {
	problems, ok := errors.AsType[strictyaml.Problems](err)
	if !ok {
		return []Finding{found(Failed, "file", "%v", err).next("correct the path, or the rights on the file")}
	}
	var list []Finding
	for _, p := range problems {
		if unset, ok := errors.AsType[*strictyaml.UnsetError](p); ok {
			list = append(list, found(Failed, "variables", "%v", p).next("set %s where the pipeline runs; sluice validate --without-secrets checks the rest of the file", unset.Variable))
			continue
		}
		list = append(list, found(Failed, "file", "%v", p).next("correct the file; sluice help pipeline has all keys"))
	}
	return list
}

// Worst is the worst state of the findings.
func Worst(list []Finding) State {
	worst := OK
	for _, f := range list {
		if f.State == Failed || f.State == Warning && worst == OK {
			worst = f.State
		}
	}
	return worst
}

// Count is how many findings have a state.
func Count(list []Finding, of State) (n int) {
	for _, f := range list {
		if f.State == of {
			n++
		}
	}
	return n
}

// oneLine is a text of bounded length on one line.
func oneLine(text string) string {
	const most = 500
	text = strings.ToValidUTF8(strings.Join(strings.Fields(text), " "), "\uFFFD")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

// stage is one pipeline under examination.
type stage struct {
	Examiner
	*pipeline.Pipeline
	name    string // empty if there is only one
	file    string
	connect pipeline.Connections
	targets *verify.Targets // all but a hub, which would be read in a consumer group
	invalid error           // why a target has no rights to test
}

func newStage(e Examiner, file string, p *pipeline.Pipeline, several bool) *stage {
	s := &stage{Examiner: e, Pipeline: p, file: file, connect: p.Connections(), targets: verify.NewTargets(verify.Options{ID: "doctor"}, nil)}
	if several {
		s.name = p.Name
	}
	c := s.connect
	c.Hub = nil
	s.invalid = s.targets.AddPipeline(c, "")
	return s
}

// command is a command of sluice for this stage.
func (s *stage) command(of string) string {
	text := "sluice " + of + " --config " + s.file
	if s.name != "" {
		text += " --stage " + s.name
	}
	return text
}

func (s *stage) checks() []check {
	list := []check{{"source", s.checkSource}}
	for _, c := range s.Checks() {
		if c.Part != "source" {
			list = append(list, check{c.Part, func(ctx context.Context) []Finding { return s.checkPart(ctx, c) }})
		}
	}
	list = append(list, check{"tables and partitions", s.checkStores})
	if s.invalid != nil {
		list = append(list, check{"rights", func(context.Context) []Finding { return []Finding{found(Failed, "", "%v", s.invalid)} }})
	}
	for _, system := range s.targets.Systems {
		list = append(list, check{"rights", func(ctx context.Context) []Finding { return s.checkSystem(ctx, system) }})
	}
	for _, at := range s.endpoints() {
		list = append(list, check{"certificate", func(ctx context.Context) []Finding { return s.checkEndpoint(ctx, at) }})
	}
	return list
}

// checkSource asks the log for the topic. It reads in no consumer group.
func (s *stage) checkSource(ctx context.Context) []Finding {
	topic, err := s.Describe(ctx)
	noun := s.System.Noun()
	if err != nil {
		return []Finding{found(Failed, "", "%s", s.failure(ctx, err.Error())).next("check the address, the name of the %s, what the credential may do (Listen, or Read), and the firewalls between", noun)}
	}
	n := len(topic.Partitions)
	switch wants := int(s.Partitions); {
	case wants > n:
		return []Finding{found(Warning, "", "%s %s has %d partitions, and the file takes %d", noun, topic.Topic, n, wants).next("set partitions to %d or less, or to balanced", n)}
	case wants > 0 && wants < n:
		return []Finding{found(OK, "", "%s %s answers: it has %d partitions, of which each process takes %d", noun, topic.Topic, n, wants)}
	}
	return []Finding{found(OK, "", "%s %s answers: it has %d partitions", noun, topic.Topic, n)}
}

// partNext is what to do about a part that fails, where its error does not say it.
var partNext = map[string]string{
	"database":               "check host, port, user and password, whether the server runs, and the firewalls between; for a table, its columns",
	"leases":                 "check the container's name, the credential's rights, and the firewalls between",
	"claim check":            "check the container's name, the credential's rights, and the firewalls between",
	"format":                 "check the schema registry's address and credential",
	"target":                 "check the address, the name, what the credential may do, and the firewalls between",
	"copies of dead letters": "check the address, the name, and what the credential may do; the pipeline itself continues without copies",
	"published progress":     "stop the other program that reads in this consumer group, or correct what the error names",
}

func (s *stage) checkPart(ctx context.Context, c pipeline.Check) []Finding {
	err := c.Run(ctx)
	if err == nil {
		return []Finding{found(OK, "", "it answers")}
	}
	var list []Finding
	for line := range strings.SplitSeq(err.Error(), "\n") {
		list = append(list, found(Failed, "", "%s", s.failure(ctx, line)).next("%s", partNext[c.Part]))
	}
	return list
}

// failure is the text of an error; where a check was interrupted because its time was up, errors
// mostly say just that.
func (s *stage) failure(ctx context.Context, text string) string {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Sprintf("no answer within %v: %s", s.Within, text)
	}
	return text
}
