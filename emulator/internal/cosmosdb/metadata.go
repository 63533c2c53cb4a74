package cosmosdb

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/sluice-go/sluice/emulator/internal/cosmosdb/query"
)

// resource has the properties of all resources.
type resource struct {
	ID      string `json:"id"`
	RID     string `json:"_rid"`
	Self    string `json:"_self"`
	Etag    string `json:"_etag"`
	Seconds int64  `json:"_ts"`
}

type accountBody struct {
	Self        string     `json:"_self"`
	ID          string     `json:"id"`
	RID         string     `json:"_rid"`
	Media       string     `json:"media"`
	Addresses   string     `json:"addresses"`
	Databases   string     `json:"_dbs"`
	Writable    []location `json:"writableLocations"`
	Readable    []location `json:"readableLocations"`
	MultiWrite  bool       `json:"enableMultipleWriteLocations"`
	Replication struct {
		Async bool `json:"asyncReplication"`
		Min   int  `json:"minReplicaSetSize"`
		Max   int  `json:"maxReplicasetSize"`
	} `json:"userReplicationPolicy"`
	Consistency struct {
		Level string `json:"defaultConsistencyLevel"`
	} `json:"userConsistencyPolicy"`
	SystemReplication struct {
		Min int `json:"minReplicaSetSize"`
		Max int `json:"maxReplicasetSize"`
	} `json:"systemReplicationPolicy"`
	ReadPolicy struct {
		Primary   int `json:"primaryReadCoefficient"`
		Secondary int `json:"secondaryReadCoefficient"`
	} `json:"readPolicy"`
	QueryEngine string `json:"queryEngineConfiguration"`
}

type location struct {
	Name     string `json:"name"`
	Endpoint string `json:"databaseAccountEndpoint"`
}

// readAccount returns the account's regions.
func (c *call) readAccount() *failure {
	regions := c.locations()
	body := accountBody{ID: "emulator", RID: "emulator", Media: "//media/", Addresses: "//addresses/", Databases: "//dbs/", Writable: regions[:1], Readable: regions}
	body.Replication.Min, body.Replication.Max = 1, 1
	body.Consistency.Level = "Session"
	body.SystemReplication.Min, body.SystemReplication.Max = 1, 1
	body.ReadPolicy.Primary, body.ReadPolicy.Secondary = 1, 1
	limits, _ := json.Marshal(map[string]any{"maxSqlQueryInputLength": query.MaxLength, "maxQueryRequestTimeoutFraction": 0.9, "enableSpatialIndexing": true})
	body.QueryEngine = string(limits)
	return c.answer(http.StatusOK, mustJSON(body))
}

type databaseBody struct {
	resource
	Colls string `json:"_colls"`
	Users string `json:"_users"`
}

func (db *database) body() databaseBody {
	self := "dbs/" + db.rid + "/"
	return databaseBody{resource{db.id, db.rid, self, db.etag, db.seconds}, "colls/", "users/"}
}

func (c *call) allDatabases() *failure {
	switch {
	case c.r.Method == http.MethodGet || c.isQuery():
		var list []json.RawMessage
		for _, db := range c.account.listDatabases() {
			list = append(list, mustJSON(db.body()))
		}
		return c.feed("Databases", "", list)
	case c.r.Method != http.MethodPost:
		return c.unsupported()
	}
	var in struct {
		ID string `json:"id"`
	}
	if f := c.decode(&in); f != nil {
		return f
	}
	db, err := c.account.createDatabase(in.ID)
	if err != nil {
		return resourceFailure(err)
	}
	return c.answerResource(http.StatusCreated, db.etag, db.body())
}

func (c *call) oneDatabase() *failure {
	db := c.account.database(c.path[1])
	if db == nil {
		return failNotFound()
	}
	switch c.r.Method {
	case http.MethodGet:
		return c.answerResource(http.StatusOK, db.etag, db.body())
	case http.MethodDelete:
		if !c.account.deleteDatabase(db.id) {
			return failNotFound()
		}
		return c.answer(http.StatusNoContent, nil)
	}
	return c.unsupported()
}

type containerBody struct {
	ID        string           `json:"id"`
	Indexing  json.RawMessage  `json:"indexingPolicy"`
	Key       keyDefinition    `json:"partitionKey"`
	TTL       json.RawMessage  `json:"defaultTtl,omitempty"`
	Unique    *uniqueKeyPolicy `json:"uniqueKeyPolicy,omitempty"`
	Conflict  json.RawMessage  `json:"conflictResolutionPolicy"`
	RID       string           `json:"_rid"`
	Self      string           `json:"_self"`
	Etag      string           `json:"_etag"`
	Seconds   int64            `json:"_ts"`
	Docs      string           `json:"_docs"`
	Sprocs    string           `json:"_sprocs"`
	Triggers  string           `json:"_triggers"`
	Functions string           `json:"_udfs"`
	Conflicts string           `json:"_conflicts"`
}

var (
	defaultIndexing = json.RawMessage(`{"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/\"_etag\"/?"}]}`)
	defaultConflict = json.RawMessage(`{"mode":"LastWriterWins","conflictResolutionPath":"/_ts","conflictResolutionProcedure":""}`)
)

func (c *Container) body() containerBody {
	c.mu.RLock()
	defer c.mu.RUnlock()
	indexing := c.indexing
	if len(indexing) == 0 {
		indexing = defaultIndexing
	}
	var unique *uniqueKeyPolicy
	if len(c.unique.Keys) > 0 {
		unique = &c.unique
	}
	return containerBody{
		ID: c.id, Unique: unique, Indexing: indexing, Key: c.key, TTL: c.ttl, Conflict: defaultConflict, RID: c.rid, Self: c.self, Etag: c.etag, Seconds: c.seconds,
		Docs: "docs/", Sprocs: "sprocs/", Triggers: "triggers/", Functions: "udfs/", Conflicts: "conflicts/",
	}
}

func (c *call) allContainers(db *database) *failure {
	switch {
	case c.r.Method == http.MethodGet || c.isQuery():
		var list []json.RawMessage
		for _, owner := range c.account.listContainers(db) {
			list = append(list, mustJSON(owner.body()))
		}
		return c.feed("DocumentCollections", db.rid, list)
	case c.r.Method != http.MethodPost:
		return c.unsupported()
	}
	in, f := c.readDefinition()
	if f != nil {
		return f
	}
	if in.Key == nil {
		return badRequest("The partition key definition is missing: a container needs one.")
	}
	spec := containerSpec{id: in.ID, key: *in.Key, indexing: in.Indexing, ttl: in.TTL, unique: in.Unique}
	if spec.throughput, spec.autoscale, f = c.requestedThroughput(); f != nil {
		return f
	}
	owner, err := c.account.createContainer(db, spec)
	if err != nil {
		return resourceFailure(err)
	}
	return c.answerContainer(http.StatusCreated, owner)
}

// requestedThroughput returns the throughput in a request to create a container, 0 if
// there is none.
func (c *call) requestedThroughput() (int, *autoscale, *failure) {
	text := c.r.Header.Get("X-Ms-Offer-Throughput")
	var settings *autoscale
	if scale := c.r.Header.Get("X-Ms-Cosmos-Offer-Autopilot-Settings"); scale != "" {
		settings = new(autoscale)
		if json.Unmarshal([]byte(scale), settings) != nil {
			return 0, nil, badRequest("The header x-ms-cosmos-offer-autopilot-settings must be JSON with maxThroughput.")
		}
		text = strconv.Itoa(settings.Max)
	}
	if text == "" {
		return 0, nil, nil
	}
	ru, err := strconv.Atoi(text)
	if err != nil || ru < minThroughput || ru > maxThroughput {
		return 0, nil, badRequest("The offer should have a throughput from 400 to 1000000 RU/s.")
	}
	return ru, settings, nil
}

func (c *call) oneContainer(db *database) *failure {
	owner, err := c.account.Container(db.id, c.path[3])
	if err != nil {
		return failNotFound()
	}
	switch c.r.Method {
	case http.MethodGet:
	case http.MethodPut:
		in, f := c.readDefinition()
		if f != nil {
			return f
		}
		if f := owner.redefine(&in); f != nil {
			return f
		}
	case http.MethodDelete:
		if !c.account.deleteContainer(db, owner.id) {
			return failNotFound()
		}
		return c.answer(http.StatusNoContent, nil)
	default:
		return c.unsupported()
	}
	return c.answerContainer(http.StatusOK, owner)
}

// answerContainer sends a container, and where it is: some clients build links from that.
func (c *call) answerContainer(status int, owner *Container) *failure {
	h := c.w.Header()
	h["x-ms-alt-content-path"] = []string{"dbs/" + owner.database.id}
	h["x-ms-content-path"] = []string{owner.database.rid}
	body := owner.body()
	return c.answerResource(status, body.Etag, body)
}

// redefine changes a container's indexing policy and time to live. Nothing else can be
// changed.
func (c *Container) redefine(in *containerIn) *failure {
	if in.ID != c.id {
		return badRequest("The id in the definition must be the container's.")
	}
	if in.Key != nil {
		if _, err := in.Key.check(); err != nil || in.Key.Kind != c.key.Kind || max(1, in.Key.Version) != max(1, c.key.Version) || !sameJSON(in.Key.Paths, c.key.Paths) {
			return badRequest("Document collection partition key cannot be changed.")
		}
	}
	if len(in.Unique.Keys) > 0 && string(mustJSON(in.Unique)) != string(mustJSON(c.unique)) {
		return badRequest("The unique keys of a container cannot be changed.")
	}
	ttl, err := parseDefaultTTL(in.TTL)
	if err != nil {
		return badRequest(userMessage(err))
	}
	c.account.mu.Lock()
	next := c.account.nextEtag()
	c.account.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.indexing, c.ttl, c.etag, c.seconds = withDefaultPaths(in.Indexing), in.TTL, next, c.account.now().Unix()
	c.indexed.Store(isIndexed(c.indexing))
	c.defaultTTL.Store(ttl)
	return nil
}

func sameJSON(a, b []string) bool { return string(mustJSON(a)) == string(mustJSON(b)) }

// resourceFailure returns the response to a request for a database or container that
// can't be created.
func resourceFailure(err error) *failure {
	if errors.Is(err, errExists) {
		return fail(http.StatusConflict, 0, messageConflict)
	}
	return badRequest(userMessage(err))
}

// decode decodes a small JSON body.
func (c *call) decode(v any) *failure {
	data, f := c.body(maxMetadata)
	if f != nil {
		return f
	}
	if err := json.Unmarshal(data, v); err != nil {
		return badRequest("The request body is not valid JSON for this resource.")
	}
	return nil
}

const maxMetadata = 256 << 10

func (c *call) answerResource(status int, tag string, body any) *failure {
	c.w.Header()["etag"] = []string{tag}
	return c.answer(status, mustJSON(body))
}

// feed returns a list of resources, or the result of a query on them.
func (c *call) feed(name, rid string, list []json.RawMessage) *failure {
	if c.isQuery() {
		q, f := c.readQuery()
		if f != nil {
			return f
		}
		if list, f = filter(q, list); f != nil {
			return f
		}
	}
	if list == nil {
		list = []json.RawMessage{}
	}
	c.w.Header()["x-ms-item-count"] = []string{strconv.Itoa(len(list))}
	return c.answer(http.StatusOK, mustJSON(map[string]any{"_rid": rid, name: list, "_count": len(list)}))
}
