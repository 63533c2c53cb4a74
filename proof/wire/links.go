package wire

import (
	"bufio"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A link is a connection between a client and a broker whose answers are lied about, frame by
// frame. What the client sends passes as it is.
type link struct {
	client, server net.Conn // the ends that face them
	protocol       protocol
	lies           lies
	rand           *rand.Rand
	told           func(lie string) // counts lies

	once   sync.Once
	ended  chan struct{}
	past   [][]byte // frames of this connection, the newest few
	lying  atomic.Bool
	spared atomic.Bool // it never lies
}

// lies are how often, per thousand frames, each is told.
type lies struct {
	Cut    int // the connection ends within the frame, at any byte
	Stall  int // nothing passes for up to two minutes
	Late   int // the frame passes up to 5 s later, and all after it
	Replay int // an earlier frame is sent again
	Empty  int // a frame without content is sent before it
	Many   int // hundreds of these
	Split  int // a message is sent in two frames (which is no lie, and rare on a network of a machine)
	Mix    int // another message begins before that one has ended
	Forge  int // the answer says something else
	Topic  int // per thousand answers about the topic: see answers
}

// protocol is what a link must know of the bytes.
type protocol interface {
	// next reads a frame, with its length.
	next(r *bufio.Reader) ([]byte, error)
	// asks reports whether a frame of the client begins what may be lied about, and whether it
	// begins what must not be.
	asks(frame []byte) (lie, spare bool)
	// empty is a frame like another one without content; nil if there is none.
	empty(frame []byte) []byte
	// split makes two frames of one; nil if it can't.
	split(frame []byte, at float64) [][]byte
	// forge returns another answer in place of one; nil if it has none.
	forge(frame []byte, r *rand.Rand) []byte
}

func (l *link) cut() {
	l.once.Do(func() {
		close(l.ended)
		l.client.Close()
		l.server.Close()
	})
}

// run passes what both sides send until one of them ends.
func (l *link) run() {
	defer l.cut()
	var passing sync.WaitGroup
	passing.Go(l.forward)
	defer passing.Wait()
	defer l.cut()
	r := bufio.NewReaderSize(l.server, 64<<10)
	for {
		frame, err := l.protocol.next(r)
		if err != nil {
			return
		}
		passed := false
		if l.lying.Load() && !l.spared.Load() {
			passed = l.pass(frame)
		} else {
			passed = l.write(frame)
		}
		if !passed {
			return
		}
		if l.past = append(l.past, frame); len(l.past) > 20 {
			l.past = l.past[1:]
		}
	}
}

// forward passes what the client sends.
func (l *link) forward() {
	defer l.cut()
	r := bufio.NewReaderSize(l.client, 64<<10)
	for {
		frame, err := l.protocol.next(r)
		if err != nil {
			return
		}
		if lie, spare := l.protocol.asks(frame); spare {
			l.spared.Store(true)
		} else if lie {
			l.lying.Store(true)
		}
		if _, err := l.server.Write(frame); err != nil {
			return
		}
	}
}

// pass sends a frame, or lies instead.
func (l *link) pass(frame []byte) bool {
	p := &l.lies
	if l.is("cut", p.Cut) {
		_, _ = l.client.Write(frame[:l.rand.IntN(len(frame))])
		return false
	}
	if l.is("stall", p.Stall) && !l.wait(time.Duration(l.rand.Int64N(int64(2*time.Minute)))) {
		return false
	}
	if l.is("late", p.Late) && !l.wait(time.Duration(l.rand.Int64N(int64(5*time.Second)))) {
		return false
	}
	if len(l.past) > 0 && l.is("replay", p.Replay) && !l.write(l.past[l.rand.IntN(len(l.past))]) {
		return false
	}
	if empty := l.protocol.empty(frame); empty != nil {
		n := 0
		if l.is("empty", p.Empty) {
			n = 1
		}
		if l.is("many empty", p.Many) {
			n = 500
		}
		for range n {
			if !l.write(empty) {
				return false
			}
		}
	}
	if forged := l.protocol.forge(frame, l.rand); forged != nil && l.is("forge", p.Forge) {
		return l.write(forged)
	}
	if parts := l.protocol.split(frame, l.rand.Float64()); parts != nil && l.is("split", p.Split) {
		if l.is("mix", p.Mix) { // the second part never comes
			return l.write(parts[0])
		}
		return l.write(parts[0]) && l.write(parts[1])
	}
	return l.write(frame)
}

func (l *link) is(lie string, perMille int) bool {
	if l.rand.IntN(1000) >= perMille {
		return false
	}
	l.told(lie)
	return true
}

func (l *link) wait(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-l.ended:
		return false
	}
}

func (l *link) write(b []byte) bool {
	_, err := l.client.Write(b)
	return err == nil
}

// sized is a protocol whose frames begin with four bytes of length. more is by how much a frame is
// longer than that says.
func sized(r *bufio.Reader, more int) ([]byte, error) {
	head, err := r.Peek(4)
	if err != nil {
		return nil, err
	}
	frame := make([]byte, int(binary.BigEndian.Uint32(head))+more)
	_, err = io.ReadFull(r, frame)
	return frame, err
}
