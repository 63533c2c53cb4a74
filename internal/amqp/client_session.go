package amqp

import (
	"context"
	"crypto/rand"
	"fmt"
)

// clientLinker is a link of either direction.
type clientLinker interface{ link() *clientLink }

// clientSession is a session that the client has begun. Client.mu guards it, except for what only
// the reader uses.
type clientSession struct {
	c       *Client
	channel uint16
	links   map[uint32]clientLinker // by the client's handle

	begun   bool
	endSent bool
	ended   chan struct{} // closed when the server has ended the session

	nextIncomingID uint32
	announced      uint32 // nextIncomingID in the last flow
	nextOutgoingID uint32

	remoteChannel uint16
	remoteLinks   map[uint32]clientLinker // by the server's handle; changed by the reader alone, with the lock
	transfers     uint32                  // came since nextIncomingID was last updated; only the reader uses it
}

// begin begins a session on the lowest free channel. It does not wait for the answer: frames that
// follow may be sent before it (section 2.5.1).
func (c *Client) begin() (*clientSession, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return nil, c.err
	}
	s := &clientSession{c: c, links: make(map[uint32]clientLinker), remoteLinks: make(map[uint32]clientLinker), ended: make(chan struct{})}
	for c.sessions[s.channel] != nil {
		s.channel++
	}
	c.sessions[s.channel] = s
	c.push(s.channel, &begin{incomingWindow: sessionWindow, outgoingWindow: sessionWindow, handleMax: 0xffffffff})
	return s, nil
}

// end ends the session, and waits for the server's answer, the end of the connection, or that of
// ctx.
func (s *clientSession) end(ctx context.Context) {
	s.c.mu.Lock()
	s.pushEnd()
	s.endLinks(ErrLinkClosed)
	s.c.mu.Unlock()
	select {
	case <-s.ended:
	case <-s.c.done:
	case <-ctx.Done():
	}
}

func (s *clientSession) pushEnd() {
	if !s.endSent {
		s.c.push(s.channel, &endOrClose{desc: descEnd})
		s.endSent = true
	}
}

func (s *clientSession) onEnd(p *endOrClose) {
	s.pushEnd()
	s.endLinks(reasonOf(p.err))
	delete(s.c.sessions, s.channel)
	delete(s.c.remote, s.remoteChannel)
	close(s.ended)
}

func (s *clientSession) endLinks(err error) {
	for _, l := range s.links {
		l.link().end(err)
	}
}

// received counts the transfers that have come. It grants the server more before the window is used
// up: what limits the server is link credit, and how fast the client reads.
func (s *clientSession) received() {
	s.nextIncomingID += s.transfers
	s.transfers = 0
	if s.nextIncomingID-s.announced > sessionWindow/2 {
		s.pushFlow(flow{})
	}
}

// pushFlow sends a flow with the state of the session, and of the link that p names.
func (s *clientSession) pushFlow(p flow) {
	if s.endSent {
		return
	}
	p.nextIncomingID, p.hasIncomingID = s.nextIncomingID, s.begun
	p.incomingWindow, p.outgoingWindow = sessionWindow, sessionWindow
	p.nextOutgoingID = s.nextOutgoingID
	s.announced = s.nextIncomingID
	s.c.push(s.channel, &p)
}

func (s *clientSession) onFlow(p *flow) error {
	if !p.hasHandle {
		if p.echo {
			s.pushFlow(flow{})
		}
		return nil
	}
	linker := s.remoteLinks[p.handle]
	if linker == nil {
		return Errorf(CondUnattachedHandle, "flow for handle %d, which has no link", p.handle)
	}
	switch l := linker.(type) {
	case *Receiver:
		l.onFlow(p)
	case *clientSender:
		l.onFlow(p)
	}
	return nil
}

// clientLink is what links of both directions have in common.
type clientLink struct {
	s        *clientSession
	name     string
	handle   uint32
	attached chan struct{} // closed when the server has answered the attach, unless by a refusal
	done     chan struct{} // closed when the link has ended
	signal   chan struct{} // capacity 1: there are messages, or credit

	// Guarded by Client.mu.
	err          error // why the link has ended
	detachSent   bool
	answered     bool // the server has answered the attach
	remoteHandle uint32
}

func (l *clientLink) link() *clientLink { return l }

// attach attaches a link. It fills in the link's base, the attach's name and handle, and does not
// wait for the answer.
func (s *clientSession) attach(linker clientLinker, p *attach) error {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	l := linker.link()
	*l = clientLink{s: s, name: rand.Text(), attached: make(chan struct{}), done: make(chan struct{}), signal: make(chan struct{}, 1)}
	for s.links[l.handle] != nil {
		l.handle++
	}
	s.links[l.handle] = linker
	p.name, p.handle = l.name, l.handle
	c.push(s.channel, p)
	return nil
}

// await waits until the link is attached.
func (l *clientLink) await(ctx context.Context) error {
	select {
	case <-l.attached:
		return nil
	case <-l.done:
		return l.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *clientSession) onAttach(p *attach) error {
	for _, linker := range s.links {
		l := linker.link()
		_, receiver := linker.(*Receiver)
		if l.name != p.name || l.answered || receiver == p.receiver {
			continue
		}
		if s.remoteLinks[p.handle] != nil {
			return Errorf(CondHandleInUse, "handle %d already has a link", p.handle)
		}
		l.answered, l.remoteHandle = true, p.handle
		s.remoteLinks[p.handle] = linker
		near := p.target
		if r, ok := linker.(*Receiver); ok {
			near = p.source
			r.limit.Add(p.initialCount) // until now it counted from 0
			r.deliveryCount, r.count = p.initialCount, p.initialCount
		}
		if near != nil { // otherwise a detach with the reason follows (section 2.6.3)
			close(l.attached)
		}
		return nil
	}
	return Errorf(CondNotAllowed, "attach of %.100q answers no attach", p.name)
}

func (s *clientSession) onDetach(p *detach) error {
	linker := s.remoteLinks[p.handle]
	if linker == nil {
		return Errorf(CondUnattachedHandle, "detach of handle %d, which has no link", p.handle)
	}
	l := linker.link()
	l.pushDetach()
	delete(s.remoteLinks, p.handle)
	delete(s.links, l.handle)
	l.end(reasonOf(p.err))
	return nil
}

func (l *clientLink) pushDetach() {
	if !l.detachSent && !l.s.endSent {
		l.detachSent = true
		l.s.c.push(l.s.channel, &detach{handle: l.handle, closed: true})
	}
}

// end records why the link has ended, unless it has.
func (l *clientLink) end(err error) {
	if l.err == nil {
		l.err = err
		close(l.done)
	}
}

// Done is closed when the link has ended.
func (l *clientLink) Done() <-chan struct{} { return l.done }

// Err is why the link has ended: an [*Error] of the server or [ErrLinkClosed], or what
// [Client.Err] returns. It is nil while the link is attached.
func (l *clientLink) Err() error {
	l.s.c.mu.Lock()
	defer l.s.c.mu.Unlock()
	return l.err
}

// Detach detaches the link, and waits for the server's answer. The error is that of ctx, or of a
// link that had ended before.
func (l *clientLink) Detach(ctx context.Context) error {
	l.s.c.mu.Lock()
	err := l.err
	l.pushDetach()
	l.s.c.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("detach: %w", ctx.Err())
	}
}
