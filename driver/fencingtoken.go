package driver

import "context"

// FencingToken says under which lease, and from which incarnation of the topic, an
// event is being written. A store that keeps it with what it writes can refuse a
// write that is older than what is there.
type FencingToken struct {
	Lease       Lease
	Incarnation string
}

// Emission is what a context says of the event whose records are made and submitted in it.
type Emission interface {
	Token() FencingToken
	// EventIncarnation is the incarnation of the topic that the event is of.
	EventIncarnation() string
}

// Token implements [Emission].
func (t FencingToken) Token() FencingToken { return t }

// EventIncarnation implements [Emission]: that of the token.
func (t FencingToken) EventIncarnation() string { return t.Incarnation }

type emissionKey struct{}

// WithEmission returns a context for the records of an event.
func WithEmission(ctx context.Context, e Emission) context.Context {
	return context.WithValue(ctx, emissionKey{}, e)
}

// EmissionOf returns what ctx says of the event whose records are made in it, nil if nothing.
func EmissionOf(ctx context.Context) Emission {
	e, _ := ctx.Value(emissionKey{}).(Emission)
	return e
}

// FencingTokenOf returns the token of a context that AtLeastOnce calls records and
// [Sink].Submit with. For any other context it returns the zero value.
func FencingTokenOf(ctx context.Context) FencingToken {
	if e := EmissionOf(ctx); e != nil {
		return e.Token()
	}
	return FencingToken{}
}

// IncarnationOf returns the incarnation of the topic that the event which is being written is of.
// It is that of the [FencingToken], unless the event is a dead letter of an earlier incarnation
// that is redriven. With group, partition and sequence number it identifies the event. It works
// in the contexts that AtLeastOnce calls records and [Sink].Submit with; for any other it
// returns "".
func IncarnationOf(ctx context.Context) string {
	if e := EmissionOf(ctx); e != nil {
		return e.EventIncarnation()
	}
	return ""
}
