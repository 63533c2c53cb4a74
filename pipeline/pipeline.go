package pipeline

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/config/strictyaml"
)

// File is a pipeline file that was read and is valid.
type File struct {
	Path string
	// Stages are its pipelines, at least one, in the file's order. Events pass
	// through them in this order.
	Stages []*Pipeline

	parse   func() error                  // reads the stages
	matched map[strictyaml.Place][]string // the topics of patterns
}

// Pipeline is one pipeline of a file: the only one, or a stage. It is safe for
// concurrent use.
type Pipeline struct {
	Name   string
	System System // of the log that it reads
	// Group is the key of its checkpoints and dead letters. The namespace is empty if
	// only the log knows it: [Parts.Group] has it.
	Group      sluice.Group
	Table      string // the table of target.insert as the file names it, or those of all routes; empty for other targets
	Partitions sluice.Partitions
	// Rollup reports that the pipeline keeps statistics in memory, which it reads
	// again at every assignment. It has neither checkpoints nor dead letters.
	Rollup bool

	amongTopics bool          // it is one of those that a source with several topics or hubs makes
	config      sluice.Config // the settings of the file
	source      log           // nil if it cannot be read
	body        bodyReader
	stampKeys   stampKeys
	storage     storage
	routing     routing
	rollup      *rollupConfig // statistics in memory; nil: none
	memoryLimit int           // of the process, in bytes; 0: the default
	atLeastOnce atLeastOnceOptions
	copies      *copyTarget // of dead letters; nil: they are not copied
	places      places
	tests       []*Test
}

// places are where the file names parts of a pipeline.
type places struct{ source, claim, format, progress, database, leases, target strictyaml.Place }

// AtLeastOnce reports whether the pipeline's delivery is [sluice.AtLeastOnce] or [sluice.Batches]:
// its target is outside the database of its checkpoints.
func (p *Pipeline) AtLeastOnce() bool { return !transactional(p.routing.routes[0].target) }

// InBatches reports whether the delivery is [sluice.Batches].
func (p *Pipeline) InBatches() bool {
	_, posts := p.target().(*httpTarget)
	return posts && p.atLeastOnce.config.Order == sluice.OrderPartition
}

// LoadFile reads a pipeline file, with variables from the environment, and checks
// everything that can be checked without a connection. The error has one line for
// each problem, with file, line, column, key, and what to do.
func LoadFile(path string) (*File, error) {
	data, err := strictyaml.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return ParseFile(path, data, os.LookupEnv)
}

// CheckFile checks a pipeline file of which environment variables may be missing. It returns the
// names of those that are not set; values with such a variable are not checked, and neither is what
// depends on them.
func CheckFile(path string) (missing []string, err error) {
	_, err = LoadFile(path)
	all, ok := errors.AsType[strictyaml.Problems](err)
	if !ok {
		return nil, err
	}
	var rest strictyaml.Problems
	for _, p := range all {
		unset, ok := errors.AsType[*strictyaml.UnsetError](p)
		switch {
		case !ok:
			rest = append(rest, p)
		case !slices.Contains(missing, unset.Variable):
			missing = append(missing, unset.Variable)
		}
	}
	if len(rest) > 0 {
		return missing, rest
	}
	return missing, nil
}

// ParseFile is [LoadFile] for a file's content, with variables from lookup. The
// path is the name of the file in messages.
func ParseFile(path string, data []byte, lookup func(string) (string, bool)) (*File, error) {
	f := &File{Path: path}
	f.parse = func() error { return strictyaml.Read(path, data, lookup, f.read) }
	if err := f.parse(); err != nil {
		return nil, err
	}
	return f, nil
}

// Stage returns the stage with a name. An empty name means the only pipeline of
// the file.
func (f *File) Stage(name string) (*Pipeline, error) {
	if name == "" && len(f.Stages) == 1 {
		return f.Stages[0], nil
	}
	names := make([]string, len(f.Stages))
	for i, p := range f.Stages {
		if p.Name == name {
			return p, nil
		}
		names[i] = p.Name
	}
	if name == "" {
		return nil, fmt.Errorf("%s: has several stages, name one of them: %s", f.Path, strings.Join(names, ", "))
	}
	return nil, fmt.Errorf("%s: has no stage %q: its stages are %s", f.Path, name, strings.Join(names, ", "))
}

// Load is [LoadFile] for a file with one pipeline.
func Load(path string) (*Pipeline, error) { return only(LoadFile(path)) }

// Parse is [ParseFile] for a file with one pipeline.
func Parse(path string, data []byte, lookup func(string) (string, bool)) (*Pipeline, error) {
	return only(ParseFile(path, data, lookup))
}

func only(f *File, err error) (*Pipeline, error) {
	if err != nil {
		return nil, err
	}
	return f.Stage("")
}

// LeaseFor returns how long a lease is valid.
func (p *Pipeline) LeaseFor() time.Duration {
	return cmp.Or(p.config.LeaseFor, 30*time.Second) // sluice.Config's default
}

// nameOf returns the default name of a pipeline.
func nameOf(path string) string {
	base := filepath.Base(path)
	return cmp.Or(strings.TrimSuffix(base, filepath.Ext(base)), base)
}

// String returns the pipeline's name. Every fmt verb prints only this, because the
// other fields contain secrets.
func (p *Pipeline) String() string { return p.Name }
