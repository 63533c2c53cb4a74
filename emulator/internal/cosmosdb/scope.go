package cosmosdb

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-go/sluice/emulator/internal/cosmosdb/query"
	"github.com/sluice-go/sluice/internal/partitionkey"
)

const (
	defaultPage   = 100
	maxPage       = 10_000
	maxPageSize   = 4 << 20  // bytes
	maxSorted     = 100_000  // maximum results of ORDER BY
	maxSortedSize = 64 << 20 // bytes
	scanStep      = 1000     // documents that are read while writers wait
	scanStepSize  = 1 << 20  // bytes, after which no further one is read
)

// readQuery parses the query in a request's body.
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
		return nil, badRequest("The body of a query must be JSON with query and parameters.")
	}
	parameters := make(map[string]json.RawMessage, len(in.Parameters))
	for _, p := range in.Parameters {
		parameters[p.Name] = p.Value
	}
	q, err := query.Parse(in.Query, parameters)
	if err != nil {
		return nil, badRequest(userMessage(err))
	}
	return q, nil
}

// filter executes a query on a list of resources.
func filter(q *query.Query, list []json.RawMessage) ([]json.RawMessage, *failure) {
	if !q.Whole() {
		return nil, badRequest("Of databases, containers and offers the emulator answers SELECT * with WHERE only.")
	}
	var err error
	list = slices.DeleteFunc(list, func(r json.RawMessage) bool {
		matches, e := q.Matches(r)
		err = cmp.Or(err, e)
		return !matches
	})
	return list, queryFailure(err)
}

// scope says which documents a query reads.
type scope struct {
	owner    *Container
	key      []byte // the partition key of the documents
	prefix   []byte // or its prefix
	rangeID  string
	min, max string // of effective partition keys; equal for one partition key
	narrowed bool   // the client has asked for the documents from min to max

	last     []byte // partition key of the document that inRange saw last
	lastHash string
}

// scopeOf returns the scope in the request's headers.
func (c *call) scopeOf(owner *Container) (scope, *failure) {
	s := scope{owner: owner, max: partitionkey.Whole.Max, rangeID: c.rangeID()}
	if from, to := c.r.Header.Get("X-Ms-Start-Epk"), c.r.Header.Get("X-Ms-End-Epk"); from != "" || to != "" {
		r, err := partitionkey.ParseRange(from, cmp.Or(to, partitionkey.Whole.Max))
		if err != nil {
			return s, badRequest(userMessage(err))
		}
		s.min, s.max, s.narrowed = r.Min, r.Max, true
	}
	text := c.r.Header.Get(keyHeader)
	if text == "[]" && len(owner.paths) > 1 {
		return s, badRequest("The partition key of a query has at least one component: [] has none.")
	}
	if text == "" || text == "[]" {
		return s, nil
	}
	values, err := partitionkey.Parse([]byte(text))
	if err != nil || len(values) > len(owner.paths) {
		return s, badRequest("Partition key " + strconv.Quote(text[:min(len(text), 40)]) + " is invalid.")
	}
	hash := owner.hash.Hash(values...)
	s.narrowed = false // the key is narrower
	s.key, s.min, s.max = partitionkey.AppendJSON(nil, values), hash, hash
	if len(values) < len(owner.paths) {
		s.prefix, s.key = append(s.key[:len(s.key)-1], ','), nil
		s.max = hash + partitionkey.Whole.Max
	}
	return s, nil
}

func (s *scope) contains(rec record) bool {
	if s.narrowed && !s.inRange(rec) {
		return false
	}
	return s.key == nil && s.prefix == nil || s.key != nil && bytes.Equal(rec.key(), s.key) || s.prefix != nil && bytes.HasPrefix(rec.key(), s.prefix)
}

// inRange reports whether a document's effective partition key is from min to max.
func (s *scope) inRange(rec record) bool {
	if key := rec.key(); s.last == nil || !bytes.Equal(key, s.last) {
		values, _ := partitionkey.Parse(key) // package partitionkey has written it
		s.last, s.lastHash = append(s.last[:0], key...), s.owner.hash.Hash(values...)
	}
	return partitionkey.Range{Min: s.min, Max: s.max}.Contains(s.lastHash)
}

// partitions returns the partitions that the scope overlaps, in order.
func (s *scope) partitions() ([]*partition, *failure) {
	if s.rangeID != "" {
		p, f := s.owner.find(s.rangeID)
		return []*partition{p}, f
	}
	return slices.DeleteFunc(s.owner.partitions(), func(p *partition) bool {
		if s.min == s.max {
			return !p.bounds.Contains(s.min)
		}
		return !p.bounds.Overlaps(partitionkey.Range{Min: s.min, Max: s.max})
	}), nil
}

// continuation is a continuation token: how far a query has been executed. Positions
// are document numbers in parts of the hash space, so that they stay valid when a
// partition is split. Everything below the first part is done; everything above the
// last one isn't begun.
type continuation struct {
	Parts  []continuationRange `json:"parts,omitempty"`
	Passed int                 `json:"passed,omitempty"` // results so far, for TOP and OFFSET
}

type continuationRange struct {
	Min        string `json:"min"`
	Max        string `json:"max"`
	LastNumber uint64 `json:"after"`
}

// lastNumber returns the document number after which to continue in a partition, or that it
// is done.
func (at *continuation) lastNumber(bounds partitionkey.Range) (number uint64, done bool) {
	for _, p := range at.Parts {
		if bounds.Overlaps(partitionkey.Range{Min: p.Min, Max: p.Max}) {
			return p.LastNumber, false
		}
	}
	return 0, len(at.Parts) > 0 && partitionkey.Compare(bounds.Min, at.Parts[0].Min) < 0
}

// advance returns the continuation after the document with that number in a partition.
func (at *continuation) advance(bounds partitionkey.Range, number uint64) continuation {
	next := continuation{Parts: []continuationRange{{bounds.Min, bounds.Max, number}}, Passed: at.Passed}
	for _, p := range at.Parts {
		if partitionkey.Compare(p.Max, bounds.Max) > 0 {
			if partitionkey.Compare(p.Min, bounds.Max) < 0 {
				p.Min = bounds.Max
			}
			next.Parts = append(next.Parts, p)
		}
	}
	return next
}

const maxRanges = 64 // as of a partition that is split between any two pages

func (c *call) continuation() (continuation, *failure) {
	var at continuation
	if text := c.r.Header.Get("X-Ms-Continuation"); text != "" {
		if err := json.Unmarshal([]byte(text), &at); err != nil || at.Passed < 0 || len(at.Parts) > maxRanges {
			return at, badRequest("The continuation token is malformed.")
		}
	}
	return at, nil
}

// pageSize returns the number of results in a page.
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

// query answers a query of documents; GET lists all of them. The account executes
// queries on all partitions by itself, including those whose results Azure's gateway
// leaves to the client to merge.
func (c *call) query(owner *Container) *failure {
	if c.r.Header.Get("A-Im") != "" {
		return badRequest("The emulator has no change feed of documents.")
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
	at, f := c.continuation()
	if f != nil {
		return f
	}
	began := time.Now()
	run, f := c.run(q, &s, at)
	if f != nil {
		return f
	}
	c.charge = run.charge
	c.session(owner, "0")
	h := c.w.Header()
	h["x-ms-item-count"] = []string{strconv.Itoa(run.written)}
	if c.isTrue("X-Ms-Documentdb-Populatequerymetrics") {
		h["x-ms-documentdb-query-metrics"] = []string{run.metrics(time.Since(began))}
	}
	if run.more {
		h["x-ms-continuation"] = []string{string(mustJSON(run.next))}
	}
	c.buffers.out = append(strconv.AppendInt(append(run.out, `],"_count":`...), int64(run.written), 10), '}')
	return c.answer(http.StatusOK, c.buffers.out)
}

// run executes the query for a page. If a partition is split meanwhile, it starts
// again, unless the client has asked for that partition.
func (c *call) run(q *query.Query, s *scope, at continuation) (*queryRunner, *failure) {
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
		r := &queryRunner{query: q, scope: s, page: c.pageSize(), now: now, canceled: c.r.Context().Done(), start: at, ids: q.IDs(), out: append(c.buffers.out[:0], `{"_rid":"`+s.owner.rid+`","Documents":[`...)}
		if f = r.scanAll(partitions); f == nil || f.status != http.StatusGone || s.rangeID != "" {
			return r, f
		}
	}
}

// plan returns the query plan: the query for each partition, and how the client merges
// the results.
func (c *call) plan(q *query.Query) *failure {
	p, ok := q.Plan()
	if !ok {
		return badRequest("The emulator answers this query without a plan: send it to all partitions at once.")
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
	if p.Top >= 0 {
		i.Top = &p.Top
	}
	if p.Limit >= 0 {
		i.Offset, i.Limit = &p.Offset, &p.Limit
	}
	for n, text := range p.Expressions {
		direction := "Ascending"
		if p.Descending[n] {
			direction = "Descending"
		}
		i.OrderBy, i.OrderExpr = append(i.OrderBy, direction), append(i.OrderExpr, text)
	}
	return c.answer(http.StatusOK, mustJSON(map[string]any{
		"partitionedQueryExecutionInfoVersion": 2, "queryInfo": i,
		"queryRanges": []map[string]any{{"min": "", "max": partitionkey.Whole.Max, "isMinInclusive": true, "isMaxInclusive": false}},
	}))
}
