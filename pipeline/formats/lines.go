package formats

import (
	"bytes"
	"context"
	"fmt"

	"github.com/sluice-go/sluice/internal/jsonscan"
	"github.com/sluice-go/sluice/pipeline/internal/jsonpick"
)

// maxLineDepth is how deep a line may nest.
const maxLineDepth = 10_000

// JSONLines returns the encoding of bodies with one value of JSON in each line, such as Azure
// Stream Analytics writes. They become an array. A body that is one array already stays as it is;
// empty lines are left out.
func JSONLines() Encoding { return jsonLines{} }

type jsonLines struct{}

func (jsonLines) check(context.Context) error { return nil }

func (jsonLines) json(_ context.Context, body []byte, _ string, limit int) ([]byte, error) {
	body, err := jsonpick.UTF8(body)
	if err != nil {
		return nil, err
	}
	if body = bytes.TrimSpace(body); len(body)+2 > limit {
		return nil, tooLarge(limit)
	}
	if len(body) > 0 && body[0] == '[' && isOneValue(body) {
		return body, nil
	}
	out := make([]byte, 0, len(body)+2)
	out = append(out, '[')
	number := 0
	for line := range bytes.Lines(body) {
		number++
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if !isOneValue(line) {
			return nil, fmt.Errorf("line %d is not one value of JSON", number)
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, line...)
	}
	return append(out, ']'), nil
}

// isOneValue reports whether a text is one value of JSON.
func isOneValue(text []byte) bool {
	s := jsonscan.New(text, maxLineDepth)
	_, err := s.Value()
	return err == nil && s.End() == nil
}
