package pipeline

import (
	"context"
	"fmt"
	"strings"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/config/strictyaml"
	"github.com/sluice-go/sluice/sender"
	"github.com/sluice-go/sluice/webhook"
)

// copyTarget is where dead letters are copied to.
type copyTarget struct {
	place   strictyaml.Place
	target  target // an endpoint, or a destination of messages
	redrive string // the command to which the id of a dead letter is added
}

// readCopyTo reads dead_letters.copy_to. It comes after the source, whose hub is not a target and
// whose namespace is the default.
func (r *reader) readCopyTo(n strictyaml.Node) {
	t := &copyTarget{place: n.Place(), redrive: "sluice deadletters retry --config " + argument(n.Place().File)}
	r.copies = t
	ok := n.Object(strictyaml.Keys{
		"servicebus": func(n strictyaml.Node) {
			e := &serviceBusEntity{}
			t.target = &messageTarget{destination: e}
			e.readEntity(n, strictyaml.Keys{})
		},
		"eventhub": func(n strictyaml.Node) {
			h := &hub{}
			t.target = &messageTarget{destination: h}
			r.readTargetHub(n, h, strictyaml.Keys{})
		},
		"kafka": func(n strictyaml.Node) {
			topic := &topicTarget{}
			t.target = &messageTarget{destination: topic}
			r.readTargetTopic(n, topic, strictyaml.Keys{})
		},
		"http": func(n strictyaml.Node) {
			post := &httpTarget{}
			t.target = post
			post.read(n, strictyaml.Keys{})
		},
	})
	if ok {
		n.ExactlyOne("servicebus", "eventhub", "kafka", "http")
	}
}

// argument returns a path as a shell takes it.
func argument(path string) string {
	if !strings.ContainsFunc(path, func(r rune) bool { return !strings.ContainsRune(plainInShell, r) }) {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

const plainInShell = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:@%+=,"

// open returns the function that copies, whose connections parts closes. It does not connect: the
// target may be down for now.
func (t *copyTarget) open(parts *Parts) (func(context.Context, []sluice.DeadLetter) error, error) {
	if post, ok := t.target.(*httpTarget); ok {
		sink, err := post.open()
		if err != nil {
			return nil, err
		}
		parts.onClose(sink.Close)
		return sluice.CopyTo(sink, webhook.DeadLetterMessages(t.redrive)), nil
	}
	out, err := t.target.(*messageTarget).transport()
	if err != nil {
		return nil, err
	}
	parts.onClose(out.Close)
	sink := sender.NewSink(out, nil)
	parts.onClose(sink.Close)
	return sluice.CopyTo(sink, sender.DeadLetterMessages(t.redrive)), nil
}

// checkCopies checks the target of copies.
func (p *Pipeline) checkCopies(ctx context.Context) error {
	if err := p.copies.target.check(ctx, nil); err != nil {
		return p.problem(p.copies.place, fmt.Errorf("copies of dead letters: %w", err))
	}
	return nil
}
