package commitproxy

import "bufio"

// Wire reads both directions of one connection, in a database's protocol. Request and Answer are
// called concurrently with each other, but neither with itself. A request has been read before the
// server gets its bytes, and an answer before the client gets its own. What they keep in memory is
// bounded; both fail on what they cannot read.
type Wire interface {
	// Request reads the next bytes of the client that may be passed on together.
	Request(r *bufio.Reader) (Request, error)
	// Answer reads the next bytes of the server.
	Answer(r *bufio.Reader) (Answer, error)
}

// Request is what a client sends.
type Request struct {
	Bytes      []byte
	Statements []string // the texts of those that the server executes
	Commit     bool     // a COMMIT is among them
	Answered   bool     // an [Answer] that is Done follows
	Cancels    uint64   // the session whose statement is to be cancelled; 0 if this is no such request
}

// Answer is what a server sends.
type Answer struct {
	Bytes   []byte
	Session uint64   // the number of the connection's session, where the bytes have it
	Tags    []string // the results of statements that the server has executed, such as "UPDATE 1"
	Done    bool     // this is the end of the answer to a request
}
