package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/sluice-go/sluice/internal/config/strictyaml"
)

// maxLogs is how many topics, or hubs, a pipeline reads at most.
const maxLogs = 200

// severalLogs are the topics, or the hubs, of a source that names several. The file has a pipeline
// for each of them.
type severalLogs struct {
	node  *strictyaml.Node // nil: the source names one
	names []string
	one   string // the one that is read now; empty: the first
}

// read reads the list, and returns the name that is read now, empty if there is a problem.
func (s *severalLogs) read(n strictyaml.Node, readName func(strictyaml.Node, *string)) string {
	var list []string
	ok := n.Items(maxLogs, func(item strictyaml.Node) {
		var name string
		if readName(item, &name); name != "" && slices.Contains(list, name) {
			item.Fail("%s is there twice", name)
		}
		list = append(list, name)
	})
	if !ok {
		return ""
	}
	s.node, s.names = &n, list
	return cmp.Or(s.one, list[0])
}

// readEach reads a pipeline once for each of its logs: the targets and stores of each are its own,
// and so is its place among the stages, NAME.LOG.
func (f *File) readEach(n strictyaml.Node, shared sharedKeys, newReader func() *reader) []*reader {
	first := newReader()
	first.matched, first.clusters = f.matched, map[strictyaml.Place]*kafkaCluster{}
	first.read(n, shared)
	readers := []*reader{first}
	for i, name := range first.logs.names {
		r := first
		if i > 0 {
			r = newReader()
			r.matched, r.clusters, r.logs.one = f.matched, first.clusters, name
			r.read(n, shared)
			r.tests = nil // those of the first one say the same
			readers = append(readers, r)
		}
		r.Name += "." + name
		r.amongTopics = true
	}
	for _, r := range readers {
		if r.copies != nil && (r.stage || r.amongTopics) {
			r.copies.redrive += " --stage " + argument(r.Name)
		}
	}
	return readers
}

// topicPattern are the topics of a cluster that a source names by a pattern.
type topicPattern struct {
	expression *regexp.Regexp
	text       string
}

// readPattern reads source.kafka.topic_pattern. What matches is known after [File.Resolve].
func (r *reader) readPattern(n strictyaml.Node, t *kafkaTopic) {
	var text string
	if !n.Text(&text) {
		return
	}
	_, err := regexp.Compile(text) // by itself, so that its parentheses cannot close ours
	expression, both := regexp.Compile("^(?:" + text + ")$")
	if err = cmp.Or(err, both); err != nil {
		n.Fail("%s: not a regular expression: %w", n.Shown(), err)
		return
	}
	r.logs.node = &n
	if names := r.matched[n.Place()]; len(names) > 0 {
		r.logs.names = names
		t.name = cmp.Or(r.logs.one, names[0])
		return
	}
	t.name, t.place, t.pattern = text, n.Place(), &topicPattern{expression, text}
}

// errUnresolved is why the topics of a pattern cannot be read.
var errUnresolved = errors.New("topic_pattern: its topics are not known: only programs that call pipeline.File.Resolve can read them: name the topics in topics")

// Resolve asks the clusters which topics match the patterns of the file
// (source.kafka.topic_pattern), and makes a stage of each, in place of the one with the pattern. A
// pattern without a topic is an error. It does nothing in a file without patterns. It must not be
// called beside other methods.
func (f *File) Resolve(ctx context.Context) error {
	matched := map[strictyaml.Place][]string{}
	for _, p := range f.Stages {
		t, ok := p.source.(*kafkaTopic)
		if !ok || t.pattern == nil {
			continue
		}
		names, err := t.matching(ctx)
		if err != nil {
			return p.problem(t.place, err)
		}
		matched[t.place] = names
	}
	if len(matched) == 0 {
		return nil
	}
	f.Stages, f.matched = nil, matched
	return f.parse()
}

// matching returns the topics of the cluster that match the pattern, sorted.
func (t *kafkaTopic) matching(ctx context.Context) ([]string, error) {
	client, done, err := t.cluster.use()
	if err != nil {
		return nil, err
	}
	all, err := client.Topics(ctx)
	if err := errors.Join(err, done(ctx)); err != nil {
		return nil, err
	}
	names := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return !t.pattern.expression.MatchString(name) })
	switch {
	case len(names) == 0 && len(all) == 0:
		return nil, errors.New("the cluster shows this user no topic: create one, or give the user the right to Describe it")
	case len(names) == 0:
		shown := strings.Join(all[:min(len(all), 10)], ", ")
		return nil, fmt.Errorf("no topic matches %s among the %d that this user may Describe (%s): correct the pattern, which must match the whole name, or create a topic", t.pattern.text, len(all), shown)
	case len(names) > maxLogs:
		return nil, fmt.Errorf("%d topics match %s: at most %d: write a narrower pattern", len(names), t.pattern.text, maxLogs)
	}
	return names, nil
}
