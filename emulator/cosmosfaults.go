package emulator

import (
	"time"

	"github.com/sluice-go/sluice/emulator/internal/cosmosdb"
)

// CosmosFault is a failure that a [Cosmos] injects.
type CosmosFault struct {
	// Kind is the kind of failure.
	Kind CosmosFaultKind
	// Status and Substatus are the response's, for the kind [CosmosFaultStatus]: a
	// status from 400 to 599. If Substatus is 0, it is 1001 with status 400, 1002 with
	// 410, 3200 with 429, and otherwise left out.
	Status    int
	Substatus int
	// RetryAfter is the time that the response asks the client to wait. Default: the
	// response doesn't say.
	RetryAfter time.Duration
	// On is the kind of request that fails. Default: all kinds.
	On CosmosRequest
	// Container, as database/name, and Range, the id of a partition key range, restrict
	// the fault. Default: all. Range needs Container.
	Container string
	Range     string
	// Each makes a fault of kind [CosmosFaultStatus] hit single operations of bulk
	// batches instead of requests.
	Each bool
	// Times is how many requests or operations fail. Default: all, until the fault is
	// removed.
	Times int
	// For is how long the fault lasts after [CosmosFaults.Add]. Default: until it is
	// removed.
	For time.Duration
	// Delay is how long a request is delayed before it fails, up to one hour.
	Delay time.Duration
}

// CosmosFaultKind is a kind of [CosmosFault].
type CosmosFaultKind string

const (
	// CosmosFaultDelay delays a request, which then succeeds.
	CosmosFaultDelay CosmosFaultKind = "delay"
	// CosmosFaultStatus answers with an error, without executing the request.
	CosmosFaultStatus CosmosFaultKind = "status"
	// CosmosFaultDrop closes the connection, without executing the request.
	CosmosFaultDrop CosmosFaultKind = "drop"
	// CosmosFaultLoseAnswer executes the request and closes the connection before the
	// response.
	CosmosFaultLoseAnswer CosmosFaultKind = "lose-answer"
)

// CosmosRequest is a kind of request.
type CosmosRequest string

const (
	// OnCosmosRead is a read of one document.
	OnCosmosRead CosmosRequest = "read"
	// OnCosmosWrite is a write of one document.
	OnCosmosWrite CosmosRequest = "write"
	// OnCosmosBatch is a batch, transactional or bulk.
	OnCosmosBatch CosmosRequest = "batch"
	// OnCosmosQuery is a query or a list of documents.
	OnCosmosQuery CosmosRequest = "query"
	// OnCosmosRanges is a read of the partition key ranges.
	OnCosmosRanges CosmosRequest = "ranges"
	// OnCosmosMetadata is a request about the account, its databases, containers and
	// offers.
	OnCosmosMetadata CosmosRequest = "metadata"
)

// CosmosFaults are the faults of a [Cosmos]. It is safe for concurrent use.
type CosmosFaults struct{ set *cosmosdb.Faults }

// CosmosFaultState is a fault that was added.
type CosmosFaultState struct {
	ID    int
	Fault CosmosFault
	Hits  int // requests or operations that it has hit
}

// Add adds a fault, which is effective at once, and returns its id. If several
// faults match a request, the oldest one hits it. It returns an error if the fault
// is invalid or there are 1,000 faults already.
func (f *CosmosFaults) Add(fault CosmosFault) (id int, err error) {
	return f.set.Add(cosmosdb.Fault{
		Kind: cosmosdb.FaultKind(fault.Kind), Status: fault.Status, Substatus: fault.Substatus, RetryAfter: fault.RetryAfter,
		On: cosmosdb.Request(fault.On), Container: fault.Container, Range: fault.Range, Each: fault.Each,
		Times: fault.Times, For: fault.For, Delay: fault.Delay,
	})
}

// List returns all faults, oldest first, including those that no longer hit anything.
func (f *CosmosFaults) List() []CosmosFaultState {
	var list []CosmosFaultState
	for _, s := range f.set.List() {
		fault := CosmosFault{
			Kind: CosmosFaultKind(s.Fault.Kind), Status: s.Fault.Status, Substatus: s.Fault.Substatus, RetryAfter: s.Fault.RetryAfter,
			On: CosmosRequest(s.Fault.On), Container: s.Fault.Container, Range: s.Fault.Range, Each: s.Fault.Each,
			Times: s.Fault.Times, For: s.Fault.For, Delay: s.Fault.Delay,
		}
		list = append(list, CosmosFaultState{ID: s.ID, Fault: fault, Hits: s.Hits})
	}
	return list
}

// Remove removes a fault, and reports whether there was one with the id.
func (f *CosmosFaults) Remove(id int) bool { return f.set.Remove(id) }

// Clear removes all faults.
func (f *CosmosFaults) Clear() { f.set.Clear() }
