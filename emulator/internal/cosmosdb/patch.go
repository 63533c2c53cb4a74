package cosmosdb

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/sluice-go/sluice/emulator/internal/cosmosdb/query"
	"github.com/sluice-go/sluice/internal/jsonscan"
)

// maxPatch is how many operations a patch has at most.
// https://learn.microsoft.com/azure/cosmos-db/partial-document-update-faq
const maxPatch = 10

// patch is a partial update of a document.
type patch struct {
	condition *query.Query // nil: none
	steps     []patchStep
}

// patchStep is an operation of a patch.
type patchStep struct {
	op    string
	path  []string
	value []byte
}

var errPatch = errors.New("a patch is an array of 1 to 10 objects with op, path and value, alone or as operations of an object, which may have a condition")

// readPatch parses a patch. The client for JavaScript sends the array of operations alone if there
// is no condition.
func readPatch(data []byte) (*patch, error) {
	p := &patch{}
	s := jsonscan.New(data, maxDepth)
	operations := func() error {
		return s.Array(func() error {
			value, err := s.Value()
			if err != nil {
				return err
			}
			step, err := readPatchStep(value)
			p.steps = append(p.steps, step)
			return err
		})
	}
	var err error
	switch s.Peek() {
	case '[':
		err = operations()
	case '{':
		err = s.Object(func(name []byte) error {
			switch {
			case string(name) == `"operations"` && s.Peek() == '[':
				return operations()
			case string(name) == `"condition"` && s.Peek() == '"':
				text, err := s.Text()
				if err == nil {
					p.condition, err = query.Parse("SELECT * "+string(jsonscan.Unquote(text)), nil)
				}
				return err
			}
			_, err := s.Value()
			return err
		})
	default:
		return nil, errPatch
	}
	if err == nil {
		err = s.End()
	}
	switch {
	case err != nil:
		return nil, notJSON(err)
	case len(p.steps) == 0:
		return nil, errPatch
	case len(p.steps) > maxPatch:
		return nil, fmt.Errorf("the number of patch operations can't exceed '%d'", maxPatch)
	}
	return p, nil
}

func readPatchStep(value []byte) (step patchStep, err error) {
	if value[0] != '{' {
		return step, errPatch
	}
	path := ""
	s := jsonscan.New(value, maxDepth)
	err = s.Object(func(name []byte) error {
		held, err := s.Value()
		switch {
		case err != nil:
		case string(name) == `"op"` && held[0] == '"':
			step.op = strings.ToLower(string(jsonscan.Unquote(held)))
		case string(name) == `"path"` && held[0] == '"':
			path = string(jsonscan.Unquote(held))
		case string(name) == `"value"`:
			step.value = held
		}
		return err
	})
	switch {
	case err != nil:
		return step, err
	case !strings.HasPrefix(path, "/") || path == "/":
		return step, fmt.Errorf("the path %q of a patch operation must begin with / and a name", path)
	}
	for part := range strings.SplitSeq(path[1:], "/") {
		step.path = append(step.path, strings.NewReplacer("~1", "/", "~0", "~").Replace(part))
	}
	switch step.op {
	case "add", "set", "replace":
		if step.value == nil {
			return step, fmt.Errorf("the operation %s at %s needs a value", step.op, path)
		}
	case "incr":
		if step.value == nil || !jsonscan.IsNumber(step.value) {
			return step, fmt.Errorf("the operation incr at %s needs a number", path)
		}
	case "remove":
	default:
		return step, fmt.Errorf("the emulator's patches have add, set, replace, remove and incr, not %q", step.op)
	}
	if first := step.path[0]; first == "id" || isSystemProperty([]byte(`"`+first+`"`)) {
		return step, fmt.Errorf("the property %s can't be patched", first)
	}
	return step, nil
}

// patched returns the document that a patch makes of a stored one, or the error result.
func (c *Container) patched(p *patch, rec record) (*document, *result) {
	refused := func(status int, message string) (*document, *result) {
		return nil, &result{status: status, charge: chargeConflict, message: message}
	}
	if p.condition != nil {
		switch matches, err := p.condition.Matches(c.appendDocument(nil, rec)); {
		case err != nil:
			return refused(http.StatusBadRequest, userMessage(err))
		case !matches:
			return refused(http.StatusPreconditionFailed, messagePrecondition)
		}
	}
	body := append(bytes.Clone(rec.body()), '}')
	for i := range p.steps {
		var err error
		if body, err = p.steps[i].edit(body, p.steps[i].path); err != nil {
			return refused(http.StatusBadRequest, fmt.Sprintf("For Operation(%d): %s", i+1, userMessage(err)))
		}
	}
	doc := &document{}
	switch err := doc.read(body, c.paths); {
	case errors.Is(err, errTooLarge):
		return refused(http.StatusRequestEntityTooLarge, userMessage(err))
	case err != nil:
		return refused(http.StatusBadRequest, userMessage(err))
	case !bytes.Equal(doc.keyText, rec.key()):
		return refused(http.StatusBadRequest, "A patch can't change the partition key.")
	}
	return doc, nil
}

// edit returns a value after the operation at a path in it.
func (s *patchStep) edit(value []byte, path []string) ([]byte, error) {
	switch value[0] {
	case '{':
		return s.editObject(value, path)
	case '[':
		return s.editArray(value, path)
	}
	return nil, fmt.Errorf("given operation can only create a child object of an existing node (array or object) and cannot create path recursively, no path found beyond: '%s'", path[0])
}

func (s *patchStep) editObject(value []byte, path []string) ([]byte, error) {
	out, found := []byte{'{'}, false
	member := func(name, held []byte) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, name...), ':'), held...)
	}
	scan := jsonscan.New(value, maxDepth)
	err := scan.Object(func(name []byte) error {
		held, err := scan.Value()
		if err != nil || !jsonscan.Equal(name, path[0]) {
			member(name, held)
			return err
		}
		found = true
		if len(path) > 1 {
			held, err = s.edit(held, path[1:])
		} else {
			held, err = s.result(held)
		}
		if held != nil {
			member(name, held)
		}
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case !found && len(path) > 1:
		return nil, fmt.Errorf("given operation can only create a child object of an existing node (array or object) and cannot create path recursively, no path found beyond: '%s'", path[0])
	case !found && (s.op == "replace" || s.op == "remove"):
		return nil, s.absent(path[0])
	case !found:
		member(appendQuoted(nil, path[0]), s.value)
	}
	return append(out, '}'), nil
}

func (s *patchStep) absent(name string) error {
	return fmt.Errorf("%s operation can only be performed on an existing path, no path found: '%s'", s.op, name)
}

// result returns what becomes of a value at the operation's path; nil: it is removed.
func (s *patchStep) result(held []byte) ([]byte, error) {
	switch s.op {
	case "remove":
		return nil, nil
	case "incr":
		return sumOf(held, s.value)
	}
	return s.value, nil
}

// sumOf adds two numbers, whole ones exactly.
func sumOf(a, b []byte) ([]byte, error) {
	if !jsonscan.IsNumber(a) {
		return nil, errors.New("increment operation can only be performed on a number")
	}
	m, err1 := strconv.ParseInt(string(a), 10, 64)
	n, err2 := strconv.ParseInt(string(b), 10, 64)
	if sum := m + n; err1 == nil && err2 == nil && (sum > m) == (n > 0) {
		return appendInt(nil, sum), nil
	}
	x, err1 := strconv.ParseFloat(string(a), 64)
	y, err2 := strconv.ParseFloat(string(b), 64)
	if err := errors.Join(err1, err2); err != nil {
		return nil, errors.New("increment operation has a number that is out of range")
	}
	return appendFloat(nil, x+y), nil
}

func (s *patchStep) editArray(value []byte, path []string) ([]byte, error) {
	var elements [][]byte
	scan := jsonscan.New(value, maxDepth)
	err := scan.Array(func() error {
		held, err := scan.Value()
		elements = append(elements, held)
		return err
	})
	if err != nil {
		return nil, err
	}
	n, err := strconv.Atoi(path[0])
	if path[0] == "-" {
		n, err = len(elements), nil
	}
	switch {
	case err != nil || n < 0 || n > len(elements), n == len(elements) && len(path) > 1:
		return nil, fmt.Errorf("the array has %d elements and no index '%s'", len(elements), path[0])
	case len(path) > 1:
		elements[n], err = s.edit(elements[n], path[1:])
	case s.op == "add", n == len(elements) && s.op == "set":
		elements = append(elements[:n], append([][]byte{s.value}, elements[n:]...)...)
	case n == len(elements):
		err = s.absent(path[0])
	default:
		elements[n], err = s.result(elements[n])
		if elements[n] == nil {
			elements = append(elements[:n], elements[n+1:]...)
		}
	}
	return append(append([]byte{'['}, bytes.Join(elements, []byte{','})...), ']'), err
}

// patchDocument updates parts of the document in the request's path.
func (c *call) patchDocument(owner *Container) *failure {
	op, hash, f := c.operationFromPath(owner, verbPatch)
	if f != nil {
		return f
	}
	data, f := c.body(c.account.documentLimit())
	if f != nil {
		return f
	}
	var err error
	if op.patch, err = readPatch(data); err != nil {
		return documentFailure(err)
	}
	return c.pointOperation(owner, &op, hash)
}
