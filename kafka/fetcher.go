package kafka

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fetcherKey says what the readers of a fetcher have in common.
type fetcherKey struct {
	broker    int32
	isolation int8
}

const readUncommitted int8 = 0

// fetcher fetches from one broker for all readers whose partitions it leads, with one request at a
// time: a broker works on the requests of a connection one after the other.
type fetcher struct {
	client *Client
	key    fetcherKey
	wake   chan struct{} // signals that a reader has come or has room

	mu      sync.Mutex
	readers []*reader // the one whose turn it is comes first
}

// How long a broker waits for data if it has none. The shorter time holds while a reader is left
// out of the request: it may have room at any moment.
const (
	fetchWait      = 250 * time.Millisecond
	fetchWaitShort = 50 * time.Millisecond
	fetchMaxBytes  = 16 << 20 // of a response
)

// attach adds a reader to the fetcher of a broker, and starts that if there is none.
func (c *Client) attach(key fetcherKey, r *reader) (*fetcher, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return nil, errClosed
	}
	f := c.fetchers[key]
	if f == nil {
		f = &fetcher{client: c, key: key, wake: make(chan struct{}, 1)}
		c.fetchers[key] = f
		c.work.Go(f.run)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.readers = append(f.readers, r)
	f.signal()
	return f, nil
}

// detach removes a reader.
func (f *fetcher) detach(r *reader) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if i := slices.Index(f.readers, r); i >= 0 {
		f.readers = slices.Delete(f.readers, i, i+1)
	}
	f.signal()
}

// signal wakes the fetcher if it waits.
func (f *fetcher) signal() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// run fetches until no reader is left.
func (f *fetcher) run() {
	for !f.done() {
		readers, all := f.turn()
		if len(readers) > 0 {
			f.fetch(readers, all)
			continue
		}
		select {
		case <-f.wake:
		case <-f.client.life.Done():
		}
	}
}

// done reports whether no reader is left, or the client is closed. Then the next reader gets
// another fetcher.
func (f *fetcher) done() bool {
	f.client.mu.Lock()
	defer f.client.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.readers) > 0 && f.client.life.Err() == nil {
		return false
	}
	delete(f.client.fetchers, f.key)
	return true
}

// turn returns the readers that have room, in the order in which the broker should serve them, and
// whether these are all. Another one comes first each time: what a response has room for goes to
// the first. Of two readers of one partition the request has one.
func (f *fetcher) turn() (readers []*reader, all bool) {
	f.mu.Lock()
	if len(f.readers) > 1 {
		f.readers = append(f.readers[1:], f.readers[0])
	}
	candidates := slices.Clone(f.readers)
	f.mu.Unlock()
	taken := make(map[partitionKey]bool, len(candidates))
	for _, r := range candidates {
		if key := r.key(); !taken[key] && r.wants() {
			taken[key] = true
			readers = append(readers, r)
		}
	}
	return readers, len(readers) == len(candidates)
}

// partitionKey names a partition in requests and responses.
type partitionKey struct {
	topic     string
	partition int32
}

func (r *reader) key() partitionKey { return partitionKey{r.source.topic, r.partition} }

// fetch sends one request for the readers and gives them what comes.
func (f *fetcher) fetch(readers []*reader, all bool) {
	req, ids := f.request(readers, all)
	_, unnamed := ids[[16]byte{}]
	resp, err := request[*kmsg.FetchResponse](f.client.life, f.client, f.key.broker, fetchRequest{req, unnamed})
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		for _, r := range readers {
			r.lost(fmt.Errorf("broker %d: %w", f.key.broker, err))
		}
		return
	}
	f.give(readers, req, resp, ids)
}

// give gives the readers what a broker answered.
func (f *fetcher) give(readers []*reader, req *kmsg.FetchRequest, resp *kmsg.FetchResponse, ids map[[16]byte]string) {
	bytes := 0
	answers := make(map[partitionKey]*kmsg.FetchResponseTopicPartition, len(readers))
	for i := range resp.Topics {
		t := &resp.Topics[i]
		name := t.Topic
		if resp.Version >= firstByTopicID {
			name = ids[t.TopicID]
		}
		for j := range t.Partitions {
			answers[partitionKey{name, t.Partitions[j].Partition}] = &t.Partitions[j]
			bytes += len(t.Partitions[j].RecordBatches)
		}
	}
	asked := make(map[partitionKey]*reader, len(readers))
	for _, r := range readers {
		asked[r.key()] = r
	}
	throttled := resp.ThrottleMillis > 0 // then a broker may leave out all
	first := !throttled
	for i := range req.Topics { // the broker has room for them in this order
		t := &req.Topics[i]
		for j := range t.Partitions {
			key := partitionKey{t.Topic, t.Partitions[j].Partition}
			switch p := answers[key]; {
			case p != nil:
				asked[key].answer(p, bytes, first)
				first = first && len(p.RecordBatches) == 0
			case !throttled:
				asked[key].lost(fmt.Errorf("broker %d: %w", f.key.broker, errIncomplete))
			}
		}
	}
}

// firstByTopicID is the first version of fetch requests that name topics by their ids.
const firstByTopicID = 13

// fetchRequest is a fetch request that names topics by their names if one has no id. A broker may
// know the later version and have no ids, for example while a cluster is upgraded.
type fetchRequest struct {
	*kmsg.FetchRequest
	byName bool
}

// MaxVersion implements [kmsg.Request].
func (r fetchRequest) MaxVersion() int16 {
	if r.byName {
		return firstByTopicID - 1
	}
	return r.FetchRequest.MaxVersion()
}

// request returns a request for the readers, and the names of the topics by their ids.
func (f *fetcher) request(readers []*reader, all bool) (*kmsg.FetchRequest, map[[16]byte]string) {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis = int32(fetchWait.Milliseconds())
	if !all {
		req.MaxWaitMillis = int32(fetchWaitShort.Milliseconds())
	}
	req.MinBytes, req.MaxBytes = 1, fetchMaxBytes
	req.IsolationLevel = f.key.isolation
	req.SessionEpoch = -1 // no session: a request names all its partitions
	ids := map[[16]byte]string{}
	at := map[string]int{}
	for _, r := range readers {
		i, known := at[r.source.topic]
		if !known {
			i = len(req.Topics)
			at[r.source.topic] = i
			ids[r.topicID] = r.source.topic
			topic := kmsg.NewFetchRequestTopic()
			topic.Topic, topic.TopicID = r.source.topic, r.topicID
			req.Topics = append(req.Topics, topic)
		}
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, r.ask())
	}
	return req, ids
}
