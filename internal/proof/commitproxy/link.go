package commitproxy

import (
	"bufio"
	"errors"
	"io"
	"net"
	"sync"
)

// link is one proxied connection.
type link struct {
	proxy          *Proxy
	wire           Wire
	client, server net.Conn

	inspect func(statements []string) Fault // guarded by the proxy's mutex

	late     []byte // the COMMIT held back
	answered chan struct{}
	once     sync.Once

	mu      sync.Mutex
	session uint64     // number of the server's session
	muted   bool       // the client gets no more answers
	waiting [][]string // statements whose answers are still to come, oldest first
}

func (l *link) cut() {
	l.client.Close()
	l.server.Close()
}

// deliver sends the late COMMIT, waits for the answer or for the end of the session,
// and closes the connection.
func (l *link) deliver() {
	if _, err := l.server.Write(l.late); err == nil {
		<-l.answered
	}
	l.server.Close()
}

// mute makes downstream drop messages until the server is ready for the next query,
// and then signal.
func (l *link) mute() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.muted = true
}

// begins records the server's session.
func (l *link) begins(session uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.session = session
}

// expect records that an answer to these statements will follow.
func (l *link) expect(statements []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append(l.waiting, statements)
}

// came returns the statements whose answer has arrived.
func (l *link) came() (statements []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) > 0 {
		statements, l.waiting = l.waiting[0], l.waiting[1:]
	}
	return statements
}

func (l *link) isMuted() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.muted
}

// upstream carries the client's messages to the server.
func (l *link) upstream() {
	defer l.client.Close()
	err := l.forward()
	if !errors.Is(err, errHeld) {
		l.server.Close()
	}
}

var errHeld = errors.New("the server's connection is kept for a late COMMIT")

func (l *link) forward() error {
	r := bufio.NewReaderSize(l.client, 64<<10)
	for {
		request, err := l.wire.Request(r)
		if err != nil {
			return err
		}
		l.proxy.wait()
		if request.Cancels != 0 && l.proxy.isProtected(request.Cancels) {
			return nil
		}
		fault := l.proxy.fault(l, request)
		if request.Answered {
			l.expect(request.Statements)
		}
		switch fault {
		case CutBefore:
			return nil
		case DeliverLate:
			l.late = request.Bytes
			l.mute()
			l.proxy.hold(l)
			return errHeld
		case LoseReply:
			l.mute()
			if _, err := l.server.Write(request.Bytes); err != nil {
				return err
			}
			<-l.answered
			return nil
		}
		if _, err := l.server.Write(request.Bytes); err != nil {
			return err
		}
	}
}

// downstream carries the server's messages to the client.
func (l *link) downstream() {
	defer l.proxy.forget(l)
	defer l.once.Do(func() { close(l.answered) })
	defer l.cut()
	r := bufio.NewReaderSize(l.server, 64<<10)
	var tags []string
	for {
		answer, err := l.wire.Answer(r)
		if err != nil {
			return
		}
		if answer.Session != 0 {
			l.begins(answer.Session)
		}
		tags = append(tags, answer.Tags...)
		if answer.Done {
			l.proxy.answered(l.came(), tags)
			tags = nil
		}
		switch {
		case !l.isMuted():
			l.proxy.wait()
			if _, err := l.client.Write(answer.Bytes); err != nil {
				return
			}
		case answer.Done:
			l.once.Do(func() { close(l.answered) })
			// The transaction is over; the side that waits ends the connection.
			io.Copy(io.Discard, l.server)
			return
		}
	}
}
