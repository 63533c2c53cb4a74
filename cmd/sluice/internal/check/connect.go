package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-go/sluice/pipeline"
)

// Examiner examines the stages of a pipeline file. The zero value is ready to use.
type Examiner struct {
	// Limit bounds each check. Default: 10 s.
	Limit time.Duration
	// Now is the clock that others are compared with. Default: time.Now.
	Now func() time.Time
}

// Together they are less than the 15 seconds that `sluice check --connect` promises.
const (
	// defaultLimit bounds each check.
	defaultLimit = 10 * time.Second
	// grace is how long a check may take to return after its time is up.
	grace = 2 * time.Second
	// closingWithin is how long connections may take to close.
	closingWithin = grace / 2
)

// part is one check of a stage. It may have several findings, or none if another check reports the
// cause.
type part struct {
	name string
	run  func(ctx context.Context) List
}

// Examine checks all stages at the same time. The findings are in the order of the stages.
func (e Examiner) Examine(ctx context.Context, file string, stages []*pipeline.Pipeline) List {
	var list []*stage
	for _, p := range stages {
		list = append(list, newStage(e, file, p, len(stages) > 1))
	}
	defer closeAll(list)
	return examine(ctx, list)
}

// Reach asks systems what the credentials allow, and for the time.
func (e Examiner) Reach(ctx context.Context, targets *Targets) List {
	return examine(ctx, []*stage{{Examiner: e.defaults(), targets: targets}})
}

func (e Examiner) defaults() Examiner {
	e.Limit = cmp.Or(e.Limit, defaultLimit)
	if e.Now == nil {
		e.Now = time.Now
	}
	return e
}

func examine(ctx context.Context, stages []*stage) (all List) {
	var results []chan List
	for _, s := range stages {
		for _, p := range s.parts() {
			result := make(chan List, 1)
			results = append(results, result)
			go func() { result <- s.check(ctx, p) }()
		}
	}
	for _, result := range results {
		all = append(all, <-result...)
	}
	return all
}

// closeAll closes connections. Those that do not close soon end with the process.
func closeAll(used []*stage) {
	ctx, cancel := context.WithTimeout(context.Background(), closingWithin)
	defer cancel()
	bounded(ctx, 0, func(context.Context) any {
		for _, s := range used {
			s.targets.Close()
		}
		return nil
	})
}

// check runs a check within its bound.
func (s *stage) check(ctx context.Context, p part) List {
	ctx, cancel := context.WithTimeout(ctx, s.Limit)
	defer cancel()
	list, returned := bounded(ctx, grace, p.run)
	if !returned {
		list = List{found(Failed, p.name, "no answer within %v", s.Limit).next("check whether the server runs, and the network and the firewalls between")}
	}
	list = list.Redact(s.targets.Secrets)
	for i := range list {
		list[i].Stage, list[i].Check = s.name, cmp.Or(list[i].Check, p.name)
	}
	return list
}

// stage is one pipeline under examination.
type stage struct {
	Examiner
	*pipeline.Pipeline        // nil: there are only targets
	name               string // empty if there is only one
	file               string
	connect            pipeline.Connections
	targets            *Targets // all but a hub, which would be read in a consumer group
	invalid            error    // why a target has no rights to test
}

func newStage(e Examiner, file string, p *pipeline.Pipeline, several bool) *stage {
	s := &stage{Examiner: e.defaults(), Pipeline: p, file: file, connect: p.Connections(), targets: NewTargets(Options{ID: "connect"}, nil)}
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

func (s *stage) parts() (list []part) {
	if s.Pipeline != nil {
		list = s.pipelineParts()
	}
	for _, system := range s.targets.Systems {
		list = append(list, part{"rights", func(ctx context.Context) List { return s.checkSystem(ctx, system) }})
	}
	return list
}

func (s *stage) pipelineParts() []part {
	list := []part{{"source", s.checkSource}}
	for _, c := range s.Checks() {
		if c.Part != "source" {
			list = append(list, part{c.Part, func(ctx context.Context) List { return s.checkPart(ctx, c) }})
		}
	}
	list = append(list, part{"tables and partitions", s.checkStores})
	if s.invalid != nil {
		list = append(list, part{"rights", func(context.Context) List { return List{found(Failed, "", "%v", s.invalid)} }})
	}
	for _, at := range s.endpoints() {
		list = append(list, part{"certificate", func(ctx context.Context) List { return s.checkEndpoint(ctx, at) }})
	}
	return list
}

// checkSource asks the log for the topic. It reads in no consumer group.
func (s *stage) checkSource(ctx context.Context) List {
	topic, err := s.Describe(ctx)
	noun := s.System.Noun()
	if err != nil {
		return List{found(Failed, "", "%s", s.failure(ctx, err.Error())).next("check the address, the name of the %s, what the credential may do (Listen, or Read), and the firewalls between", noun)}
	}
	n := len(topic.Partitions)
	switch wants := int(s.Partitions); {
	case wants > n:
		return List{found(Warning, "", "%s %s has %d partitions, and the file takes %d", noun, topic.Topic, n, wants).next("set partitions to %d or less, or to balanced", n)}
	case wants > 0 && wants < n:
		return List{found(OK, "", "%s %s answers: it has %d partitions, of which each process takes %d", noun, topic.Topic, n, wants)}
	}
	return List{found(OK, "", "%s %s answers: it has %d partitions", noun, topic.Topic, n)}
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

func (s *stage) checkPart(ctx context.Context, c pipeline.Check) List {
	err := c.Run(ctx)
	if err == nil {
		return List{found(OK, "", "it answers")}
	}
	var list List
	for line := range strings.SplitSeq(err.Error(), "\n") {
		list = append(list, found(Failed, "", "%s", s.failure(ctx, line)).next("%s", partNext[c.Part]))
	}
	return list
}

// failure is the text of an error; where a check was interrupted because its time was up, errors
// mostly say just that.
func (s *stage) failure(ctx context.Context, text string) string {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Sprintf("no answer within %v: %s", s.Limit, text)
	}
	return text
}
