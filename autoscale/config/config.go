package config

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/config/internal/rulefile"
	"github.com/sluice-go/sluice/autoscale/expression"
	"github.com/sluice-go/sluice/internal/config/strictyaml"
)

// Config is the content of an autoscaler's file.
type Config struct {
	// Resource is the resource with its metrics, rule and limits.
	Resource autoscale.Resource
	// Retention is how long records of decisions are kept. Default: 30 days.
	Retention time.Duration

	sources map[string]opener[autoscale.Source]
	target  opener[autoscale.Target]
	state   opener[state]
	places  map[string]strictyaml.Place // of metrics.NAME, name, target and state
	claims  []claim
	bounds  bounds   // of the target
	values  []string // all that the file says about metrics and target

	ofWorkers bool // the target is workers, which end with the process
}

// opener opens a source, a target or the state when it is needed, and returns what
// closes it.
type opener[T any] func(ctx context.Context, opts *Options) (T, closer, error)

type closer func(context.Context) error

func noClose(context.Context) error { return nil }

// Load reads a complete file. For errors see [Parse].
func Load(path string) (*Config, error) {
	data, err := strictyaml.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, data, os.LookupEnv)
}

// Parse reads a file's content. path is its name in errors, and lookup returns
// environment variables. The error is a [strictyaml.Problems] with all problems of
// the file.
func Parse(path string, data []byte, lookup func(string) (string, bool)) (*Config, error) {
	return parse(path, data, lookup, nil)
}

// LoadRule reads only a file's rule, for a backtest on recorded metrics. If the file
// names no metrics, recorded are its metrics.
func LoadRule(path string, recorded []string) (*Config, error) {
	data, err := strictyaml.ReadFile(path)
	if err != nil {
		return nil, err
	}
	// Sources and targets are not opened, so their variables need no value.
	unset := func(name string) (string, bool) {
		if value, set := os.LookupEnv(name); set && value != "" {
			return value, true
		}
		return "unset", true
	}
	return parse(path, data, unset, recorded)
}

// newConfig returns what a file without keys says.
func newConfig(path string) *Config {
	base := filepath.Base(path)
	return &Config{
		Resource:  autoscale.Resource{Name: strings.TrimSuffix(base, filepath.Ext(base))},
		Retention: 30 * 24 * time.Hour,
		sources:   map[string]opener[autoscale.Source]{},
		places:    map[string]strictyaml.Place{"name": {File: path}},
	}
}

// parse reads a file; if recorded is not nil, only its rule is required.
func parse(path string, data []byte, lookup func(string) (string, bool), recorded []string) (*Config, error) {
	c := newConfig(path)
	err := strictyaml.Read(path, data, lookup, func(n strictyaml.Node) { c.read(n, recorded) })
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Limits of every.
const (
	minInterval = 100 * time.Millisecond
	maxInterval = 24 * time.Hour
)

// maxName is the length in bytes of the name of a resource or metric.
const maxName = 120

func (c *Config) read(n strictyaml.Node, recorded []string) {
	r := &c.Resource
	var rule *strictyaml.Node
	required := []string{"rule"}
	if recorded == nil {
		required = []string{"metrics", "target", "rule"}
	}
	n.Object(strictyaml.Keys{
		"name": func(n strictyaml.Node) {
			c.places["name"] = n.Place()
			if n.Text(&r.Name) {
				checkName(n, r.Name)
			}
		},
		"every":   func(n strictyaml.Node) { n.DurationIn(&r.Limits.Interval, minInterval, maxInterval) },
		"metrics": c.readMetrics,
		"target":  c.readTarget,
		"rule":    func(n strictyaml.Node) { rule = &n },
		"state":   c.readState,
		"keep":    func(n strictyaml.Node) { n.Duration(&c.Retention) },
	}, required...)
	if len(r.Metrics) == 0 {
		r.Metrics = slices.Sorted(slices.Values(recorded))
	}
	if rule != nil && (len(r.Metrics) > 0 || recorded != nil) { // the rule needs to know the metrics
		r.Rule = rulefile.Read(*rule, r.Metrics, &r.Limits)
		c.bounds.check(*rule, r)
	}
	if c.state == nil {
		c.state = sqliteState(r.Name + ".autoscale.db")
	}
}

func checkName(n strictyaml.Node, name string) bool {
	if len(name) > maxName || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || strings.ContainsRune(`/\#?`, r) }) {
		return n.Fail(`%s: a name has at most %d bytes, and none of / \ # ?`, n.Shown(), maxName)
	}
	return true
}

func (c *Config) readMetrics(n strictyaml.Node) {
	c.values = append(c.values, n.Values()...)
	before := len(c.Resource.Metrics)
	n.Each(func(name string, n strictyaml.Node) {
		if !checkName(n, name) {
			return
		}
		if expression.Reserved(name) {
			n.Fail("%s has a meaning in expressions: give the metric another name", name)
			return
		}
		c.Resource.Metrics = append(c.Resource.Metrics, name)
		c.places[name] = n.Place()
		if open := readSource(n); open != nil {
			c.sources[name] = open
		}
	})
	if n.IsMapping() && len(c.Resource.Metrics) == before {
		n.Fail("has no metric: write at least one")
	}
}

// exactlyOne reads a mapping that must have exactly one of the keys.
func exactlyOne[T any](n strictyaml.Node, what string, kinds map[string]func(strictyaml.Node) T) (value T) {
	keys := strictyaml.Keys{}
	var given []string
	for kind, read := range kinds {
		keys[kind] = func(n strictyaml.Node) {
			given = append(given, kind)
			if len(given) > 1 {
				n.Fail("a second %s, %s is there already: write only one", what, given[0])
				return
			}
			value = read(n)
		}
	}
	if n.Object(keys) {
		n.ExactlyOne(slices.Sorted(maps.Keys(keys))...)
	}
	return value
}

// problem adds the place of a metric, target or state to an error.
func (c *Config) problem(of string, err error) error {
	if err == nil {
		return nil
	}
	var placed *strictyaml.Problem
	if errors.As(err, &placed) {
		return err // of another file
	}
	return &strictyaml.Problem{Place: c.places[of], Err: err}
}
