// Package amqp is the server side of the AMQP 1.0 protocol: the wire types, frames, sections of a message, SASL, and the state machine
// of connections, sessions and links. It knows nothing of event hubs; what a link is attached to, and what happens to the messages on
// it, is decided by the [Peer] that the server's owner supplies for every connection.
//
// Section and table numbers in comments refer to the OASIS AMQP 1.0 standard (parts 1 types, 2 transport, 3 messaging, 5 security).
//
// Everything read from the network is bounded: a frame by the negotiated frame size, a message by the link's maximum, nesting by
// [maxDepth], the elements of a compound by the bytes it occupies, and what has been received but not yet handled by
// [Config.MaxBuffered]. Malformed input ends the connection with an AMQP error.
package amqp
