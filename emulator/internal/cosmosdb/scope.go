package cosmosdb

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"

	"github.com/sluice-go/sluice/emulator/internal/cosmosdb/query"
	"github.com/sluice-go/sluice/internal/epk"
)

const (
	defaultPage = 100
	maxPage     = 10_000
	maxPageSize = 4 << 20 // bytes
	maxSorted   = 100_000 // documents that ORDER BY sorts
	scanStep    = 1000    // documents that are looked at while writers wait
)

// readQuery reads the query in a request's body.
func (c *call) readQuery() (*query.Query, *failure) {
	var in struct {
		Query      string `json:"query"`
		Parameters []struct {
			Name  string          `json:"name"`
			Value json.RawMessage `json:"value"`
		} `json:"parameters"`
	}
	data, f := c.body(maxBody)
	if f != nil {
		return nil, f
	}
	if err := json.Unmarshal(data, &in); err != nil {
		return nil, bad("The body of a query must be JSON with query and parameters.")
	}
	parameters := make(map[string]json.RawMessage, len(in.Parameters))
	for _, p := range in.Parameters {
		parameters[p.Name] = p.Value
	}
	q, err := query.Parse(in.Query, parameters)
	if err != nil {
		return nil, bad(sentence(err))
	}
	return q, nil
}

// filter runs a query on a few resources.
func filter(q *query.Query, list []json.RawMessage) ([]json.RawMessage, *failure) {
	if !q.Whole() {
		return nil, bad("Of databases, containers and offers the emulator answers SELECT * with WHERE only.")
	}
	return slices.DeleteFunc(list, func(r json.RawMessage) bool { return !q.Matches(r) }), nil
}

// scope is what a query looks at.
type scope struct {
	owner    *Container
	key      []byte // documents of this partition key
	prefix   []byte // or of those that begin so
	rangeID  string
	min, max string // of the hash space; one hash where both are the same
}

// scopeOf reads the scope from the request's headers.
func (c *call) scopeOf(owner *Container) (scope, *failure) {
	s := scope{owner: owner, max: epk.Whole.Max, rangeID: c.rangeID()}
	text := c.r.Header.Get(keyHeader)
	if text == "" || text == "[]" {
		return s, nil
	}
	values, err := epk.Parse([]byte(text))
	if err != nil || len(values) > len(owner.paths) {
		return s, bad("Partition key " + strconv.Quote(text[:min(len(text), 40)]) + " is invalid.")
	}
	hash := owner.hash.Hash(values...)
	s.key, s.min, s.max = epk.AppendJSON(nil, values), hash, hash
	if len(values) < len(owner.paths) {
		s.prefix, s.key = append(s.key[:len(s.key)-1], ','), nil
		s.max = hash + epk.Whole.Max
	}
	return s, nil
}

func (s *scope) holds(rec record) bool {
	return s.key == nil && s.prefix == nil || s.key != nil && bytes.Equal(rec.key(), s.key) || s.prefix != nil && bytes.HasPrefix(rec.key(), s.prefix)
}

// partitions are those that the scope touches, in order.
func (s *scope) partitions() ([]*partition, *failure) {
	if s.rangeID != "" {
		p, f := s.owner.find(s.rangeID)
		return []*partition{p}, f
	}
	return slices.DeleteFunc(s.owner.live(), func(p *partition) bool {
		if s.min == s.max {
			return !p.bounds.Contains(s.min)
		}
		return !p.bounds.Overlaps(epk.Range{Min: s.min, Max: s.max})
	}), nil
}

// progress is a continuation token: how far a query has come. Places are numbers of documents within parts of the hash space, so that they hold
// when a partition is split; what is below the first part is done, what is above the last not begun.
type progress struct {
	Parts  []part `json:"parts,omitempty"`
	Passed int    `json:"passed,omitempty"` // documents that were found, for TOP and OFFSET
}

type part struct {
	Min   string `json:"min"`
	Max   string `json:"max"`
	After uint64 `json:"after"`
}

// after is where to go on in a partition, unless it is done.
func (at *progress) after(bounds epk.Range) (number uint64, done bool) {
	for _, p := range at.Parts {
		if bounds.Overlaps(epk.Range{Min: p.Min, Max: p.Max}) {
			return p.After, false
		}
	}
	return 0, len(at.Parts) > 0 && epk.Compare(bounds.Min, at.Parts[0].Min) < 0
}

// reach is the progress when number is reached in a partition.
func (at *progress) reach(bounds epk.Range, number uint64) progress {
	next := progress{Parts: []part{{bounds.Min, bounds.Max, number}}, Passed: at.Passed}
	for _, p := range at.Parts {
		if epk.Compare(p.Max, bounds.Max) > 0 {
			if epk.Compare(p.Min, bounds.Max) < 0 {
				p.Min = bounds.Max
			}
			next.Parts = append(next.Parts, p)
		}
	}
	return next
}

const maxParts = 64 // a partition that is split between any two pages

func (c *call) progress() (progress, *failure) {
	var at progress
	if text := c.r.Header.Get("X-Ms-Continuation"); text != "" {
		if err := json.Unmarshal([]byte(text), &at); err != nil || at.Passed < 0 || len(at.Parts) > maxParts {
			return at, bad("The continuation token is malformed.")
		}
	}
	return at, nil
}

// pageSize is how many documents a client wants at once.
func (c *call) pageSize() int {
	n, err := strconv.Atoi(c.r.Header.Get("X-Ms-Max-Item-Count"))
	switch {
	case err != nil || n == 0:
		return defaultPage
	case n < 0 || n > maxPage:
		return maxPage
	}
	return n
}

// query answers a query of documents or, to GET, all of them. The account answers queries over all partitions by itself, also those of which Azure's
// gateway leaves the merging to the client.
func (c *call) query(owner *Container) *failure {
	if c.r.Header.Get("A-Im") != "" {
		return bad("The emulator has no change feed of documents.")
	}
	q := query.All()
	if c.r.Method == http.MethodPost {
		var f *failure
		if q, f = c.readQuery(); f != nil {
			return f
		}
	}
	if c.isTrue("X-Ms-Cosmos-Is-Query-Plan-Request") {
		return c.plan(q)
	}
	s, f := c.scopeOf(owner)
	if f != nil {
		return f
	}
	at, f := c.progress()
	if f != nil {
		return f
	}
	run, f := c.run(q, &s, at)
	if f != nil {
		return f
	}
	c.charge = run.charge
	c.session(owner, "0")
	h := c.w.Header()
	h["X-Ms-Item-Count"] = []string{strconv.Itoa(run.written)}
	if run.more {
		h["X-Ms-Continuation"] = []string{string(mustJSON(run.next))}
	}
	c.buffers.out = append(strconv.AppendInt(append(run.out, `],"_count":`...), int64(run.written), 10), '}')
	return c.answer(http.StatusOK, c.buffers.out)
}

// run finds a page. If a partition is split meanwhile it begins anew, unless the client had asked for that partition.
func (c *call) run(q *query.Query, s *scope, at progress) (*runner, *failure) {
	for {
		partitions, f := s.partitions()
		if f != nil {
			return nil, f
		}
		now := c.account.now()
		for _, p := range partitions {
			if wait, ok := p.budget.admit(now); !ok {
				return nil, failThrottled(wait)
			}
		}
		q.Reset()
		r := &runner{query: q, scope: s, page: c.pageSize(), at: at, ids: q.IDs(), out: append(c.buffers.out[:0], `{"_rid":"`+s.owner.rid+`","Documents":[`...)}
		if f = r.over(partitions); f == nil || f.status != http.StatusGone || s.rangeID != "" {
			return r, f
		}
	}
}

// plan answers what a client should ask each partition, and how it should merge the answers.
func (c *call) plan(q *query.Query) *failure {
	p, ok := q.Plan()
	if !ok {
		return bad("The emulator answers this query without a plan: send it to all partitions at once.")
	}
	type info struct {
		Distinct  string            `json:"distinctType"`
		Top       *int              `json:"top"`
		Offset    *int              `json:"offset"`
		Limit     *int              `json:"limit"`
		OrderBy   []string          `json:"orderBy"`
		OrderExpr []string          `json:"orderByExpressions"`
		GroupBy   []string          `json:"groupByExpressions"`
		Aliases   []string          `json:"groupByAliases"`
		Aggregate []string          `json:"aggregates"`
		ByAlias   map[string]string `json:"groupByAliasToAggregateType"`
		Rewritten string            `json:"rewrittenQuery"`
		Value     bool              `json:"hasSelectValue"`
		Unsorted  bool              `json:"hasNonStreamingOrderBy"`
	}
	i := info{
		Distinct: "None", OrderBy: []string{}, OrderExpr: []string{}, GroupBy: []string{}, Aliases: []string{}, Aggregate: []string{},
		ByAlias: map[string]string{}, Value: p.Value, Rewritten: p.Rewritten,
	}
	if p.Aggregate != "" {
		i.Aggregate = []string{p.Aggregate}
	}
	return c.answer(http.StatusOK, mustJSON(map[string]any{
		"partitionedQueryExecutionInfoVersion": 2, "queryInfo": i,
		"queryRanges": []map[string]any{{"min": "", "max": epk.Whole.Max, "isMinInclusive": true, "isMaxInclusive": false}},
	}))
}
