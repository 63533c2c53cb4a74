package pipeline

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/strictyaml"
)

// File is a pipeline file that was read and found sound.
type File struct {
	Path string
	// Stages are its pipelines, at least one, in the file's order, which is
	// that in which events pass them.
	Stages []*Pipeline
}

// Pipeline is a pipeline of a file: its only one, or a stage. It is safe for
// concurrent use.
type Pipeline struct {
	Name       string
	Group      sluice.Group // what its checkpoints and dead letters are kept under
	Table      string       // that it inserts into, as the file names it; empty if it doesn't
	Partitions sluice.Partitions
	// Rollup says that events are read into memory, anew on every
	// assignment: there are neither checkpoints nor dead letters.
	Rollup bool

	config      sluice.Config // what the file says of it
	hub         hub           // the source; its namespace is that of a target that names none
	database    database
	target      target // in the database, unless one of the following is set
	cosmos      *cosmosTarget
	messages    *messageTarget
	rollup      *rollupConfig // what goes to the next hub
	atLeastOnce atLeastOnceOptions
	places      struct{ source, database, target strictyaml.Place }
	keyNodes    struct{ start, partitions, letters *strictyaml.Node } // what not every pipeline may have
}

// LoadFile reads a pipeline file, with variables from the environment, and
// checks all that can be checked without reaching anything. The error has a
// line for each problem: file, line, column, key, and what to do.
func LoadFile(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, readError(path, err)
	}
	defer f.Close()
	// One byte more, so that ParseFile sees what is too large.
	data, err := io.ReadAll(io.LimitReader(f, strictyaml.MaxSize+1))
	if err != nil {
		return nil, readError(path, err)
	}
	return ParseFile(path, data, os.LookupEnv)
}

func readError(path string, err error) error {
	var failed *os.PathError
	if errors.As(err, &failed) {
		err = failed.Err
	}
	return fmt.Errorf("%s: cannot be read: %w", path, err)
}

// ParseFile is [LoadFile] of a file's content, with variables from lookup. The
// path is what messages call the file.
func ParseFile(path string, data []byte, lookup func(string) (string, bool)) (*File, error) {
	f := &File{Path: path}
	if err := strictyaml.Read(path, data, lookup, f.read); err != nil {
		return nil, err
	}
	return f, nil
}

// Stage returns the pipeline of a name; an empty one means the only one there
// is.
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
		return nil, fmt.Errorf("%s: has several stages, say which: %s", f.Path, strings.Join(names, ", "))
	}
	return nil, fmt.Errorf("%s: has no stage %q: there is %s", f.Path, name, strings.Join(names, ", "))
}

// Load is [LoadFile] of a file with one pipeline.
func Load(path string) (*Pipeline, error) { return only(LoadFile(path)) }

// Parse is [ParseFile] of a file with one pipeline.
func Parse(path string, data []byte, lookup func(string) (string, bool)) (*Pipeline, error) {
	return only(ParseFile(path, data, lookup))
}

func only(f *File, err error) (*Pipeline, error) {
	if err != nil {
		return nil, err
	}
	return f.Stage("")
}

// LeaseFor is how long a lease lasts.
func (p *Pipeline) LeaseFor() time.Duration {
	return cmp.Or(p.config.LeaseFor, 30*time.Second) // sluice.Config's default
}

// nameOf is what a pipeline is called whose file doesn't say.
func nameOf(path string) string {
	base := filepath.Base(path)
	return cmp.Or(strings.TrimSuffix(base, filepath.Ext(base)), base)
}

// String names the pipeline. It is what is printed, whatever the verb: the
// rest holds secrets.
func (p *Pipeline) String() string { return p.Name }
