package results

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/sluice-go/sluice/pipeline"
)

// tested is a test as a line of JSON.
type tested struct {
	File        string       `json:"file"`
	Line        int          `json:"line"`
	Stage       string       `json:"stage,omitempty"`
	Name        string       `json:"name"`
	OK          bool         `json:"ok"`
	Error       string       `json:"error,omitempty"` // why it cannot run
	Differences []difference `json:"differences,omitempty"`
}

type difference struct {
	Event  int    `json:"event,omitempty"` // from 1
	Row    int    `json:"row,omitempty"`   // from 1
	Column string `json:"column,omitempty"`
	Want   string `json:"want"`
	Got    string `json:"got"`
}

// TestJSON writes a test as one line of JSON.
func TestJSON(w io.Writer, t *pipeline.Test, stage string, list []pipeline.Difference, failed error) error {
	line := tested{File: t.File, Line: t.Line, Stage: stage, Name: t.Name, OK: failed == nil && len(list) == 0}
	if failed != nil {
		line.Error = failed.Error()
	}
	for _, d := range list {
		line.Differences = append(line.Differences, difference{d.Event, d.Row, d.Column, d.Want, d.Got})
	}
	lines := json.NewEncoder(w)
	lines.SetEscapeHTML(false)
	return lines.Encode(line)
}

// Subject is what a difference is about: empty for the only event as a whole.
func Subject(d *pipeline.Difference) string {
	var parts []string
	if d.Event > 0 {
		parts = append(parts, fmt.Sprintf("event %d", d.Event))
	}
	if d.Row > 0 {
		parts = append(parts, fmt.Sprintf("row %d", d.Row))
	}
	if d.Column != "" {
		parts = append(parts, d.Column)
	}
	return strings.Join(parts, ", ")
}
