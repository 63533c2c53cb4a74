// Package amqp is the AMQP 1.0 protocol: the wire types, frames, sections of a message, SASL, and
// the state machines of connections, sessions and links, for servers and for clients that receive.
// It knows nothing of event hubs and queues: the [Peer] that a server's owner supplies for every
// connection decides what a link leads to and what happens to its messages.
//
// The protocol is the OASIS standard AMQP 1.0; section and table numbers in comments refer to it
// (part 1 types, 2 transport, 3 messaging, 5 security). What Azure adds is limited to the SASL
// mechanism MSSBCBS and to error conditions that begin with com.microsoft; comments name the
// client libraries that need a deviation.
//
// # Limits
//
// Everything read from the network is bounded: a frame by the negotiated frame size, a message by
// the link's maximum, nesting by [maxDepth], the elements of a compound by the bytes it occupies,
// and what has been received but not yet handled by [Config.MaxBuffered]. Malformed input ends the
// connection with an AMQP error.
//
// # Goroutines and locks
//
// Each connection of a server has one goroutine that reads frames and advances the state of
// sessions and links, one that writes queued frames, one for each link, which runs the function
// that the Peer supplied, and from time to time one that sends dispositions. Conn.mu guards all
// state of a connection, its sessions and its links. It is never held over I/O or a call of the
// Peer, except for the encoding functions that are passed to [Outgoing.Send]. Server.mu guards the
// server's sets of listeners and connections. Those of a client are described at [Client].
//
// # Reading order
//
// server.go accepts connections; conn.go runs one from handshake (sasl.go) to close, with its
// reader in conn_read.go and its writer in conn_write.go. session.go and link.go hold what both
// directions share; incoming.go receives messages, outgoing.go sends them, disposition.go settles
// what was sent. client.go opens the other end of a connection and closes it, with its frames in
// client_dispatch.go; client_session.go holds sessions and links, client_receiver.go receives, and
// client_token.go proves rights. Below that lies the wire format: frame.go, performative.go and
// fields.go, message.go, types.go, encode.go, decode.go.
package amqp
