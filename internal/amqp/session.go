package amqp

import (
	"maps"
	"time"
)

// sessionWindow is the incoming-window of every session: how many transfers a client may send
// before the server's next flow.
const sessionWindow = 5000

// session is one session of a connection. Its channel number and the handles of its links are the
// same in both directions: the server answers with the number that the client chose. c.mu guards
// it.
type session struct {
	c            *Conn
	channel      uint16
	links        map[uint32]*Link
	runningLinks int // links whose function hasn't returned

	nextIncomingID       uint32
	incomingWindow       uint32 // transfers the client may still send
	nextOutgoingID       uint32
	remoteIncomingWindow uint32 // transfers the client still accepts
	nextDeliveryID       uint32
	unsettled            map[uint32]unsettled // by delivery id

	endReceived, endSent bool
}

func (c *Conn) onBegin(channel uint16, p *begin) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case int(channel) >= c.cfg.MaxSessions:
		return Errorf(CondNotAllowed, "channel %d is above the agreed maximum of %d", channel, c.cfg.MaxSessions-1)
	case len(c.sessions) >= c.trustedOr(c.cfg.MaxSessions, untrustedSessions):
		return Errorf(CondResourceLimit, "a connection may have at most %d sessions before its client has proved a right", untrustedSessions)
	case c.sessions[channel] != nil:
		return Errorf(CondNotAllowed, "channel %d already has a session", channel)
	case p.hasRemote:
		return Errorf(CondNotAllowed, "begin has a remote-channel, but the server has not begun a session")
	}
	s := &session{
		c: c, channel: channel, links: make(map[uint32]*Link), unsettled: make(map[uint32]unsettled),
		nextIncomingID: p.nextOutgoingID, incomingWindow: sessionWindow, remoteIncomingWindow: p.incomingWindow,
	}
	c.sessions[channel] = s
	c.push(channel, &begin{
		remoteChannel: channel, hasRemote: true, nextOutgoingID: 0, incomingWindow: sessionWindow, outgoingWindow: sessionWindow,
		handleMax: uint32(c.cfg.MaxLinks - 1),
	})
	return nil
}

// onEnd ends a session. The answering end is sent when the functions of all its links have
// returned.
func (c *Conn) onEnd(channel uint16) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sessions[channel]
	if s == nil {
		return Errorf(CondNotAllowed, "end on channel %d, which has no session", channel)
	}
	s.endReceived = true
	s.cancelLinks()
	s.endIfDone()
	return nil
}

func (s *session) cancelLinks() {
	for _, l := range s.links {
		l.cancel()
	}
}

// endIfDone completes the end of the session once the client has sent end and no link's function
// runs.
func (s *session) endIfDone() {
	if !s.endReceived || s.runningLinks > 0 {
		return
	}
	if !s.endSent {
		s.c.push(s.channel, &endOrClose{desc: descEnd})
		s.endSent = true
	}
	for _, l := range s.links {
		s.unregister(l)
	}
	delete(s.c.sessions, s.channel)
}

// fail ends the session because of a protocol error of the client. The session's frames are
// ignored until the client's end.
func (s *session) fail(e *Error) {
	if s.endSent {
		return
	}
	s.c.push(s.channel, &endOrClose{desc: descEnd, err: e})
	s.endSent = true
	s.cancelLinks()
}

// unregister frees a link's handle and name.
func (s *session) unregister(l *Link) {
	if s.links[l.handle] != l {
		return
	}
	delete(s.links, l.handle)
	if s.c.linkCount--; s.c.linkCount == 0 {
		s.c.linkless = time.Now()
	}
	if key := l.key(); s.c.linksByName[key] == l {
		delete(s.c.linksByName, key)
	}
	if l.incoming != nil {
		l.incoming.dropPartial()
	} else {
		maps.DeleteFunc(s.unsettled, func(_ uint32, u unsettled) bool { return u.link == l.outgoing })
	}
}

func (s *session) onFlow(p *flow) {
	s.nextIncomingID = p.nextOutgoingID
	// Until the client has received our begin, next-incoming-id is unset and counts from that
	// begin's next-outgoing-id, 0 (section 2.5.6). A window that has shrunk below the number of
	// transfers in flight is empty.
	window := p.nextIncomingID + p.incomingWindow - s.nextOutgoingID
	if !p.hasIncomingID {
		window = p.incomingWindow - s.nextOutgoingID
	}
	if int32(window) < 0 && p.incomingWindow < 1<<31 {
		window = 0
	}
	s.remoteIncomingWindow = window
	for _, l := range s.links {
		if l.outgoing != nil {
			l.outgoing.wakeUp()
		}
	}
	if !p.hasHandle {
		if p.echo {
			s.pushFlow(flow{})
		}
		return
	}
	l := s.links[p.handle]
	switch {
	case l == nil:
		s.fail(Errorf(CondUnattachedHandle, "flow for handle %d, which has no link", p.handle))
	case l.detachSent || l.detachReceived:
	case l.outgoing != nil:
		l.outgoing.onFlow(p)
	case p.echo:
		l.incoming.pushFlow()
	}
}

// pushFlow sends a flow with the state of the session, and of the link that p names.
func (s *session) pushFlow(p flow) {
	p.nextIncomingID = s.nextIncomingID
	p.incomingWindow = s.incomingWindow
	p.nextOutgoingID = s.nextOutgoingID
	p.outgoingWindow = sessionWindow
	s.c.push(s.channel, &p)
}

// onDetach ignores a detach after the end of its session: Azure's Python library sends it.
func (c *Conn) onDetach(channel uint16, p *detach) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.sessions[channel]; s != nil && !s.endSent {
		s.onDetach(p)
	}
	return nil
}

func (s *session) onDetach(p *detach) {
	l := s.links[p.handle]
	if l == nil {
		s.fail(Errorf(CondUnattachedHandle, "detach of handle %d, which has no link", p.handle))
		return
	}
	if l.detachSent {
		s.unregister(l)
		return
	}
	l.detachReceived, l.peerClosed = true, p.closed
	l.cancel() // the answering detach is sent when the link's function has returned
}
