package pipeline

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/eventhub"
	"github.com/sluice-go/sluice/internal/strictyaml"
)

// Pipeline is a pipeline file that was read and found sound. It is safe for
// concurrent use.
type Pipeline struct {
	Name       string
	Group      sluice.Group // what its checkpoints and dead letters are kept under
	Table      string       // that it inserts into, as the file names it; empty for a statement
	Partitions sluice.Partitions

	config    sluice.Config // what the file says of it
	newSource func() (*eventhub.Source, error)
	database  database
	target    target
	streaming streaming
	cosmos    *cosmosTarget // nil: the target is in the database
	at        struct{ source, database, target strictyaml.Place }
}

// Load reads a pipeline file, with variables from the environment, and checks
// all that can be checked without reaching anything. The error has a line for
// each problem: file, line, column, key, and what to do.
func Load(path string) (*Pipeline, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, readError(path, err)
	}
	defer f.Close()
	// One byte more, so that Parse sees what is too large.
	data, err := io.ReadAll(io.LimitReader(f, strictyaml.MaxSize+1))
	if err != nil {
		return nil, readError(path, err)
	}
	return Parse(path, data, os.LookupEnv)
}

func readError(path string, err error) error {
	var failed *os.PathError
	if errors.As(err, &failed) {
		err = failed.Err
	}
	return fmt.Errorf("%s: cannot be read: %w", path, err)
}

// Parse is [Load] of a file's content, with variables from lookup. The path is
// what messages call the file.
func Parse(path string, data []byte, lookup func(string) (string, bool)) (*Pipeline, error) {
	p := &Pipeline{Name: strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))}
	if err := strictyaml.Read(path, data, lookup, p.read); err != nil {
		return nil, err
	}
	return p, nil
}

// String names the pipeline. It is what is printed, whatever the verb: the
// rest holds secrets.
func (p *Pipeline) String() string { return p.Name }
