package check

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/internal/partitionkey"
)

// cosmosChecks are the checks of a container of Cosmos DB.
var cosmosChecks = []check[*cosmosSystem]{
	{"cosmos.regions", "Only one region accepts writes: a conditional write compares versions in the region that it reaches.", 0, (*cosmosSystem).checkRegions},
	{"cosmos.container", "The container keeps documents until they are deleted, and its partition key is one that Sluice computes.", 0, (*cosmosSystem).checkContainer},
	{"cosmos.ranges", "The partition key ranges cover all keys once, and a document is in the range that was computed: bulk requests are sent by range.", 0, (*cosmosSystem).checkRanges},
	{"cosmos.bulk", "A bulk request gives each operation a status of its own, and one that fails does not stop those after it.", 0, (*cosmosSystem).checkBulk},
	{"cosmos.etag", "A replacement that names an older version is refused: an old event must not replace a newer one's document.", 0, (*cosmosSystem).checkETag},
	{"cosmos.create", "Creating a document that exists is refused: it is the first step of a conditional write.", 0, (*cosmosSystem).checkCreate},
	{"cosmos.charge", "Each answer says how many RU it used, and each operation of a bulk request does: the pacing counts them.", 0, (*cosmosSystem).checkCharge},
	{"cosmos.throttle", "A request above the throughput gets status 429 and the time to wait: the sink slows down by it.", 0, (*cosmosSystem).checkThrottle},
	{"cosmos.speed", "A write takes less than a second: what is in flight is planned for that.", 0, (*cosmosSystem).measure},
}

// cosmosSystem is a container that is checked.
type cosmosSystem struct {
	opts   Options
	client *cosmosClient
	// requests is how many of each kind are measured.
	requests int

	definition containerDefinition

	numbers atomic.Int64 // of the documents named so far

	mu   sync.Mutex
	docs []docID // that may exist
}

type containerDefinition struct {
	PartitionKey struct {
		Paths   []string
		Kind    string
		Version int
	}
	DefaultTTL *int `json:"defaultTtl"`
}

type keyRange struct {
	ID                         string
	MinInclusive, MaxExclusive string
}

// OpenCosmos makes a [System] of a container of Cosmos DB. It does not connect.
func OpenCosmos(a CosmosAddress, opts Options) (System, error) {
	client, err := dialCosmos(a)
	if err != nil {
		return nil, err
	}
	return &cosmosSystem{opts: opts, client: client, requests: 30}, nil
}

func (s *cosmosSystem) Name() string {
	return fmt.Sprintf("Cosmos DB %s/%s/%s", s.client.base.Host, s.client.Database, s.client.Container)
}
func (s *cosmosSystem) Checks() []Check       { return bind(s, cosmosChecks) }
func (s *cosmosSystem) Close(context.Context) { s.client.Client.CloseIdleConnections() }

func (s *cosmosSystem) Creates() []string {
	list := []string{"documents with the property \"sluiceCheck\": \"" + s.opts.ID + "\"; they are deleted at the end; a change feed shows them"}
	if s.opts.Load {
		list = append(list, "writes for up to 10 s as fast as the container takes them, which may use up its throughput for that time")
	}
	return list
}

const cosmosRole = "use a key that may write, or give the identity the role Cosmos DB Built-in Data Contributor"

// Rights implements [System]. Writing and deleting are tried with documents that do not exist.
func (s *cosmosSystem) Rights(ctx context.Context) []Right {
	read := Right{Name: "read the container's definition"}
	err := s.client.get(ctx, resource{kind: "colls"}, nil, &s.definition)
	if err == nil && len(s.definition.PartitionKey.Paths) == 0 {
		err = errors.New("the answer names no partition key")
	}
	read.grant(err, "check the endpoint, the names of the database and the container, the account's firewall, and "+cosmosRole)
	if !read.Granted {
		return []Right{read}
	}
	missing := docID{id: "sluice-check-" + s.opts.ID + "-rights"}
	missing.values = s.key(missing.id)
	rights := []Right{read}
	for _, t := range []struct{ name, method string }{{"read documents", http.MethodGet}, {"replace documents", http.MethodPut}, {"delete documents", http.MethodDelete}} {
		var body []byte
		if t.method == http.MethodPut {
			body = s.body(missing, 0)
		}
		a, err := s.client.do(ctx, t.method, resource{"docs", missing.id}, map[string]string{"x-ms-documentdb-partitionkey": missing.key()}, body)
		if err == nil && a.status != http.StatusNotFound && a.status != http.StatusPreconditionFailed {
			err = a.err()
		}
		r := Right{Name: t.name}
		r.grant(err, cosmosRole)
		rights = append(rights, r)
	}
	return rights
}

// Prepare implements [System].
func (s *cosmosSystem) Prepare(_ context.Context, made *Ledger) error {
	made.Add("documents of run "+s.opts.ID, s.removeDocuments)
	return nil
}

func (s *cosmosSystem) ranges(ctx context.Context) ([]keyRange, []partitionkey.Range, error) {
	var list struct{ PartitionKeyRanges []keyRange }
	err := s.client.get(ctx, resource{kind: "pkranges"}, map[string]string{"x-ms-max-item-count": "-1"}, &list)
	if err != nil {
		return nil, nil, err
	}
	found := list.PartitionKeyRanges
	slices.SortFunc(found, func(a, b keyRange) int { return partitionkey.Compare(a.MinInclusive, b.MinInclusive) })
	bounds := make([]partitionkey.Range, len(found))
	for i, r := range found {
		if bounds[i], err = partitionkey.ParseRange(r.MinInclusive, r.MaxExclusive); err != nil {
			return nil, nil, err
		}
	}
	return found, bounds, nil
}

// operation is one of a bulk request.
type operation struct {
	Type         string          `json:"operationType"`
	PartitionKey string          `json:"partitionKey"`
	ID           string          `json:"id,omitempty"`
	IfMatch      string          `json:"ifMatch,omitempty"`
	Body         json.RawMessage `json:"resourceBody,omitempty"`
}

// operationResult is the account's answer to one operation.
type operationResult struct {
	StatusCode    int     `json:"statusCode"`
	RequestCharge float64 `json:"requestCharge"`
	ETag          string  `json:"eTag"`
}

// bulk sends operations to a range, as Sluice's sink does.
func (s *cosmosSystem) bulk(ctx context.Context, id string, ops []operation) (answer, []operationResult, error) {
	body, err := json.Marshal(ops)
	if err != nil {
		return answer{}, nil, err
	}
	a, err := s.client.do(ctx, http.MethodPost, resource{kind: "docs"}, map[string]string{
		"x-ms-cosmos-is-batch-request": "True", "x-ms-cosmos-batch-atomic": "false", "x-ms-cosmos-batch-continue-on-error": "true",
		"x-ms-documentdb-partitionkeyrangeid": id,
	}, body)
	if err != nil {
		return a, nil, err
	}
	var results []operationResult
	if a.ok() {
		err = json.Unmarshal(a.body, &results)
	}
	return a, results, err
}

func (s *cosmosSystem) definitionHash() partitionkey.Definition {
	pk := s.definition.PartitionKey
	return partitionkey.Definition{Hierarchical: pk.Kind == "MultiHash", Version: max(1, pk.Version)}
}

// together returns n new documents of one range, and the range.
func (s *cosmosSystem) together(ctx context.Context, n int) (string, []docID, error) {
	ids, bounds, err := s.ranges(ctx)
	if err != nil {
		return "", nil, err
	}
	of := map[int][]docID{}
	for range 1000 * n {
		d := s.newID()
		i := partitionkey.Find(bounds, s.definitionHash().Hash(d.values...))
		if i < 0 {
			return "", nil, errors.New("a key is in no range")
		}
		if of[i] = append(of[i], d); len(of[i]) == n {
			s.mayExist(of[i]...)
			return ids[i].ID, of[i], nil
		}
	}
	return "", nil, errors.New("no range has enough keys")
}

func (s *cosmosSystem) checkRegions(ctx context.Context) Finding {
	var account struct {
		EnableMultipleWriteLocations bool                    `json:"enableMultipleWriteLocations"`
		WritableLocations            []struct{ Name string } `json:"writableLocations"`
		ReadableLocations            []struct{ Name string } `json:"readableLocations"`
		UserConsistencyPolicy        struct {
			DefaultConsistencyLevel string `json:"defaultConsistencyLevel"`
		} `json:"userConsistencyPolicy"`
	}
	if err := s.client.get(ctx, resource{}, nil, &account); err != nil {
		return failed("reading the account", err)
	}
	switch {
	case account.EnableMultipleWriteLocations || len(account.WritableLocations) > 1:
		return differed("the account accepts writes in %d regions", len(account.WritableLocations)).
			next("turn multi-region writes off, or do without `conditional: true`: conditions hold in one region only")
	case len(account.WritableLocations) == 0:
		return differed("the account names no region for writes")
	}
	return held("%d region for writes, %d for reads, consistency %s", len(account.WritableLocations), len(account.ReadableLocations), account.UserConsistencyPolicy.DefaultConsistencyLevel)
}

func (s *cosmosSystem) checkContainer(context.Context) Finding {
	pk := s.definition.PartitionKey
	switch {
	case pk.Version > 2:
		return differed("the partition key has version %d, which Sluice does not know", pk.Version)
	case s.definition.DefaultTTL != nil && *s.definition.DefaultTTL > 0:
		return tolerated("the container removes documents after %d s: a redriven older event may then create its document again", *s.definition.DefaultTTL)
	}
	return held("partition key %s, version %d", strings.Join(pk.Paths, ", "), max(1, pk.Version))
}

func (s *cosmosSystem) checkRanges(ctx context.Context) Finding {
	ids, bounds, err := s.ranges(ctx)
	if err != nil {
		return failed("reading the partition key ranges", err)
	}
	if err := partitionkey.Complete(bounds); err != nil {
		return differed("%d partition key ranges: %s", len(ids), oneLine(err)).next("run the command again, in case a range was just split")
	}
	for range 4 * min(len(ids), 8) {
		d := s.document()
		i := partitionkey.Find(bounds, s.definitionHash().Hash(d.values...))
		if i < 0 {
			return differed("the key of document %s is in no range", d.id)
		}
		a, results, err := s.bulk(ctx, ids[i].ID, []operation{{Type: "Upsert", PartitionKey: d.key(), Body: s.body(d, 1)}})
		switch {
		case err != nil:
			return failed("writing to range "+ids[i].ID, err)
		case !a.ok():
			return differed("range %s refuses a document that was computed to be in it: %s", ids[i].ID, oneLine(a.err()))
		case len(results) != 1 || results[0].StatusCode >= 300:
			return differed("range %s refuses a document that was computed to be in it: %+v", ids[i].ID, results)
		}
		if version, _, err := s.stored(ctx, d); err != nil || version != 1 {
			return differed("a document that was written to its range cannot be read by its key (version %d, %v)", version, err)
		}
	}
	return held("%d ranges cover all keys, and documents are where they were computed to be", len(ids))
}

func (s *cosmosSystem) checkBulk(ctx context.Context) Finding {
	id, docs, err := s.together(ctx, 5)
	if err != nil {
		return failed("choosing documents", err)
	}
	for _, d := range docs[1:3] {
		if _, err := s.upsert(ctx, d, 1); err != nil {
			return failed("writing a document", err)
		}
	}
	ops := []operation{
		{Type: "Upsert", PartitionKey: docs[0].key(), Body: s.body(docs[0], 2)},
		{Type: "Create", PartitionKey: docs[1].key(), Body: s.body(docs[1], 2)},
		{Type: "Replace", PartitionKey: docs[2].key(), ID: docs[2].id, IfMatch: `"00000000-0000-0000-0000-000000000000"`, Body: s.body(docs[2], 2)},
		{Type: "Replace", PartitionKey: docs[3].key(), ID: docs[3].id, Body: s.body(docs[3], 2)},
		{Type: "Upsert", PartitionKey: docs[4].key(), Body: s.body(docs[4], 2)},
	}
	a, results, err := s.bulk(ctx, id, ops)
	switch {
	case err != nil:
		return failed("sending a bulk request", err)
	case !a.ok():
		return differed("the bulk request is refused as a whole: %s", oneLine(a.err()))
	}
	var got []string
	for _, r := range results {
		got = append(got, strconv.Itoa(r.StatusCode))
	}
	want := []string{"201", "409", "412", "404", "201"}
	if !slices.Equal(got, want) {
		return differed("the statuses are %s instead of %s", strings.Join(got, ", "), strings.Join(want, ", "))
	}
	for i, version := range []int{2, 1, 1, -1, 2} {
		stored, _, err := s.stored(ctx, docs[i])
		switch {
		case err != nil:
			return failed("reading a document", err)
		case stored != version:
			return differed("operation %d answered %s, and the document has version %d instead of %d", i+1, got[i], stored, version)
		}
	}
	return held("five operations got the statuses %s, and the last was carried out after three failed", strings.Join(got, ", "))
}

func (s *cosmosSystem) checkETag(ctx context.Context) Finding {
	d := s.document()
	first, err := s.upsert(ctx, d, 1)
	if err != nil {
		return failed("writing a document", err)
	}
	replace := func(version int, etag string) (answer, error) {
		return s.client.do(ctx, http.MethodPut, resource{"docs", d.id}, map[string]string{"x-ms-documentdb-partitionkey": d.key(), "If-Match": etag}, s.body(d, version))
	}
	old := first.header.Get("etag")
	second, err := replace(2, old)
	switch {
	case err != nil:
		return failed("replacing a document", err)
	case old == "" || !second.ok():
		return differed("a replacement of version %q is refused: %v", old, second.err())
	case second.header.Get("etag") == old:
		return differed("the version of a document did not change with its content")
	}
	third, err := replace(3, old)
	if err != nil {
		return failed("replacing a document", err)
	}
	version, _, err := s.stored(ctx, d)
	switch {
	case err != nil:
		return failed("reading a document", err)
	case third.status != http.StatusPreconditionFailed || version != 2:
		return differed("a replacement that names an older version answered %d, and the document has version %d instead of 2", third.status, version)
	}
	return held("the current version is accepted, an older one refused with 412")
}

func (s *cosmosSystem) checkCreate(ctx context.Context) Finding {
	d := s.document()
	create := func(version int) (answer, error) {
		return s.client.do(ctx, http.MethodPost, resource{kind: "docs"}, map[string]string{"x-ms-documentdb-partitionkey": d.key()}, s.body(d, version))
	}
	if _, err := success(create(1)); err != nil {
		return failed("creating a document", err)
	}
	a, err := create(2)
	if err != nil {
		return failed("creating the document again", err)
	}
	version, _, err := s.stored(ctx, d)
	switch {
	case err != nil:
		return failed("reading a document", err)
	case a.status != http.StatusConflict || version != 1:
		return differed("creating a document that exists answered %d, and it has version %d instead of 1", a.status, version)
	}
	return held("the second creation is refused with 409")
}

func (s *cosmosSystem) checkCharge(ctx context.Context) Finding {
	id, docs, err := s.together(ctx, 2)
	if err != nil {
		return failed("choosing documents", err)
	}
	write, err := s.upsert(ctx, docs[0], 1)
	if err != nil {
		return failed("writing a document", err)
	}
	_, read, err := s.stored(ctx, docs[0])
	if err != nil {
		return failed("reading a document", err)
	}
	a, results, err := s.bulk(ctx, id, []operation{
		{Type: "Upsert", PartitionKey: docs[0].key(), Body: s.body(docs[0], 2)}, {Type: "Upsert", PartitionKey: docs[1].key(), Body: s.body(docs[1], 2)},
	})
	if err == nil {
		err = a.err()
	}
	if err != nil {
		return failed("sending a bulk request", err)
	}
	sum := 0.0
	for _, r := range results {
		if r.RequestCharge <= 0 {
			return differed("an operation of a bulk request has no charge")
		}
		sum += r.RequestCharge
	}
	switch {
	case write.charge() <= 0 || read.charge() <= 0 || a.charge() <= 0:
		return differed("an answer has no charge: %.2f for a write, %.2f for a read, %.2f for a bulk request", write.charge(), read.charge(), a.charge())
	case sum < a.charge()*0.5 || sum > a.charge()*2:
		return differed("the operations of a bulk request used %.2f RU, and the request %.2f", sum, a.charge())
	}
	return held("each answer has its charge").with(Measure{"write of a small document", write.charge(), "RU"}, Measure{"read of a small document", read.charge(), "RU"}, Measure{"bulk write of a small document", sum / 2, "RU"})
}

// loadFor bounds how long the container is loaded.
const loadFor = 10 * time.Second

func (s *cosmosSystem) checkThrottle(ctx context.Context) Finding {
	if !s.opts.Load {
		return skipped("not asked for: pass --load")
	}
	const workers = 16
	limited, cancel := context.WithTimeout(ctx, loadFor)
	defer cancel()
	var mu sync.Mutex
	var ru float64
	var refused *answer
	var loading sync.WaitGroup
	began := time.Now()
	for range workers {
		loading.Go(func() {
			d := s.document() // each worker writes its own again and again
			for version := 1; limited.Err() == nil; version++ {
				a, err := s.client.once(limited, http.MethodPost, resource{kind: "docs"}, s.upsertHeader(d), s.body(d, version))
				if err != nil {
					return
				}
				mu.Lock()
				ru += a.charge()
				if a.status == http.StatusTooManyRequests && refused == nil {
					refused = &a
					cancel()
				}
				mu.Unlock()
			}
		})
	}
	loading.Wait()
	rate := Measure{"RU used under load", perSecond(ru, time.Since(began)), "per second"}
	switch {
	case refused == nil:
		return undecided("the container was not throttled at %.0f RU/s", rate.Value).with(rate).next("nothing, unless the container has less throughput than that: then run the command again")
	case refused.header.Get("x-ms-retry-after-ms") == "" || refused.retryAfter() <= 0:
		return differed("status 429 does not say how long to wait").with(rate)
	case refused.retryAfter() > time.Minute:
		return differed("status 429 asks to wait for %v", refused.retryAfter()).with(rate)
	}
	return held("status 429, sub-status %d, asks to wait for %v", refused.sub, refused.retryAfter()).with(rate)
}

func (s *cosmosSystem) measure(ctx context.Context) Finding {
	d := s.document()
	version := 0
	writes, err := roundTrips(ctx, "write", s.requests, func(ctx context.Context) error {
		version++
		_, err := s.upsert(ctx, d, version)
		return err
	})
	if err != nil {
		return failed("writing a document", err)
	}
	reads, err := roundTrips(ctx, "read", s.requests, func(ctx context.Context) error { _, _, err := s.stored(ctx, d); return err })
	if err != nil {
		return failed("reading a document", err)
	}
	id, docs, err := s.together(ctx, 50)
	if err != nil {
		return failed("choosing documents", err)
	}
	ops := make([]operation, len(docs))
	for i, d := range docs {
		ops[i] = operation{Type: "Upsert", PartitionKey: d.key(), Body: s.body(d, 1)}
	}
	began := time.Now()
	a, _, err := s.bulk(ctx, id, ops)
	took := time.Since(began)
	if err == nil {
		err = a.err()
	}
	if err != nil {
		return failed("sending a bulk request", err)
	}
	o := held("%d writes, %d reads and a bulk request of %d", version, s.requests, len(docs)).with(append(writes, reads...)...).
		with(Measure{"bulk request of 50 documents", milliseconds(took), "ms"}, Measure{"RU used by one bulk request after the other", perSecond(a.charge(), took), "per second"})
	if writes[0].Value > 1000 {
		o.State, o.Found = Failed, "half of the writes take longer than a second"
	}
	return o
}
