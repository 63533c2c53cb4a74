package flights

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/sluice-go/sluice/internal/datadir"
)

// files are the pipeline files that the demo writes into its directory.
type files struct {
	strict   string // demands a delay
	fixed    string // does not
	database string
}

// writeFiles writes them at every start, since the log's address changes.
func writeFiles(dir, source string) (files, error) {
	f := files{
		strict:   filepath.Join(dir, "flights.yaml"),
		fixed:    filepath.Join(dir, "fixed.yaml"),
		database: filepath.Join(dir, "flights.db"),
	}
	for path, file := range map[string]struct{ description, required string }{
		f.strict: {"The pipeline of the demo. A record without its delay becomes a dead letter.", ""},
		f.fixed:  {"The pipeline of the demo, fixed: a record may lack its delay.", ", required: false"},
	} {
		text := fmt.Sprintf(pipelineFile, file.description, source, Quote("sqlite:"+f.database), file.required)
		if err := WriteFile(path, text); err != nil {
			return f, err
		}
	}
	return f, nil
}

// WriteFile writes a pipeline file. A reader never sees a part of it.
func WriteFile(path, text string) error {
	if err := datadir.WriteFile(path, []byte(text), 0o600); err != nil {
		return fmt.Errorf("write pipeline: %w", err)
	}
	return nil
}

// Quote writes a text for the pipeline file: JSON's strings are YAML's too.
func Quote(text string) string {
	b, err := json.Marshal(strings.ReplaceAll(text, "${", "$${"))
	if err != nil { // a string always can
		panic(err)
	}
	return string(b)
}

const pipelineFile = `# %s
# Written by sluice demo at every start. The source is there while the demo runs.
name: flights
source:
  %s
  start: earliest

partitions: all

database: %s

target:
  insert:
    table: flights
    create: true
    columns:
      hub_partition: partition
      sequence_number: sequence
      date: {from: body.date, type: text}
      delay: {from: body.delay, type: integer%s}
      distance: {from: body.distance, type: integer}
      origin: {from: body.origin, type: text}
      destination: {from: body.destination, type: text}
`
