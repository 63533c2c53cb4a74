package cosmosdb

import (
	"bytes"
	"encoding/binary"
	"net/http"
	"strings"
)

// useNames replaces the resource ids in the path by names. Clients for Java and .NET address
// the resources that they know by resource ids, as do the values of _self. It returns what the
// signature of such a request covers, the last resource id in lower case; empty for a path of
// names. A name wins over an equal resource id.
//
// The resource id of a document stays, because only the container can resolve it.
func (c *call) useNames() (link string) {
	p := c.path
	if len(p) < 2 || p[0] != "dbs" || c.account.database(p[1]) != nil {
		return ""
	}
	db := c.account.databaseByRID(p[1])
	if db == nil {
		return ""
	}
	c.byRID = true
	link = p[len(p)-1-len(p)%2]
	p[1] = db.id
	if len(p) >= 4 && p[2] == "colls" {
		if owner := c.account.containerByRID(db, p[3]); owner != nil {
			p[3] = owner.id
		}
	}
	return strings.ToLower(link)
}

func (a *Account) databaseByRID(rid string) *database {
	a.mu.RLock()
	defer a.mu.RUnlock()
	for _, db := range a.databases {
		if db.rid == rid {
			return db
		}
	}
	return nil
}

func (a *Account) containerByRID(db *database, rid string) *Container {
	a.mu.RLock()
	defer a.mu.RUnlock()
	for _, c := range db.containers {
		if c.rid == rid {
			return c
		}
	}
	return nil
}

// useDocumentID replaces the resource id of a document in the path by its id.
func (c *call) useDocumentID(owner *Container) *failure {
	if !c.byRID {
		return nil
	}
	id, ok := owner.documentID(c.path[5])
	if !ok {
		return failNotFound()
	}
	c.path[5] = id
	return nil
}

// documentID returns the id of the document with the resource id.
func (c *Container) documentID(rid string) (id string, ok bool) {
	raw, err := ridEncoding.DecodeString(rid)
	if err != nil || len(raw) != 16 || !bytes.HasPrefix(raw, c.prefix[:]) {
		return "", false
	}
	number := binary.LittleEndian.Uint64(raw[8:])
	for _, p := range c.partitions() {
		p.mu.Lock()
		if r := p.order.find(number); r != 0 {
			id, ok = string(p.record(r).id()), true
		}
		p.mu.Unlock()
		if ok {
			break
		}
	}
	return id, ok
}

// checkIntended compares the container that the client means with the one of that name.
func (c *call) checkIntended(owner *Container) *failure {
	if rid := c.r.Header.Get("X-Ms-Cosmos-Intended-Collection-Rid"); rid != "" && rid != owner.rid {
		return fail(http.StatusBadRequest, substatusRecreated, "The container was deleted and created again: its resource id is not the one in the header x-ms-cosmos-intended-collection-rid.")
	}
	return nil
}
