package amqp

// OutcomeKind is the outcome of a delivery (section 3.4).
type OutcomeKind byte

// The outcomes of the standard, in the order of their descriptors.
const (
	Accepted OutcomeKind = iota
	Rejected
	Released
	Modified
)

// Outcome is the outcome that a client sent for a message.
type Outcome struct {
	Kind OutcomeKind
	// Failed and Undeliverable are delivery-failed and undeliverable-here of a modified outcome
	// (section 3.4.5).
	Failed, Undeliverable bool
	// Annotations are the message-annotations of a modified outcome, to be merged into the
	// message's.
	Annotations Map
	// Info is the info map of a rejected outcome's error.
	Info Map
}

var outcomeNames = map[Symbol]uint64{
	"amqp:accepted:list": descAccepted, "amqp:rejected:list": descRejected, "amqp:released:list": descReleased, "amqp:modified:list": descModified,
}

// outcomeOf converts a decoded delivery state; ok is false if that is not an outcome.
func outcomeOf(state any) (o Outcome, ok bool) {
	code, in := splitComposite(state, outcomeNames)
	switch code {
	case descAccepted:
		o.Kind = Accepted
	case descRejected:
		o.Kind = Rejected
		if _, e := splitComposite(field(in, 0), map[Symbol]uint64{"amqp:error:list": descError}); e != nil {
			o.Info, _ = field(e, 2).(Map)
		}
	case descReleased:
		o.Kind = Released
	case descModified:
		o.Kind = Modified
		o.Failed, _ = field(in, 0).(bool)
		o.Undeliverable, _ = field(in, 1).(bool)
		o.Annotations, _ = field(in, 2).(Map)
	default:
		return o, false
	}
	return o, true
}

// splitComposite returns the descriptor code and the fields of a decoded composite value.
func splitComposite(v any, names map[Symbol]uint64) (code uint64, in List) {
	d, ok := v.(Described)
	if !ok {
		return 0, nil
	}
	switch n := d.Descriptor.(type) {
	case uint64:
		code = n
	case Symbol:
		code = names[n]
	}
	in, _ = d.Value.(List)
	return code, in
}

func field(in List, i int) any {
	if i >= len(in) {
		return nil
	}
	return in[i]
}

// unsettled is a delivery that the client has not settled yet.
type unsettled struct {
	link *Outgoing
	tag  [16]byte
}

// pendingDisposition is the answer to a client's disposition of one delivery, sent once its result
// is known.
type pendingDisposition struct {
	link   *Outgoing
	id     uint32
	kind   OutcomeKind
	silent bool // the client has settled the delivery: no answer is sent
	wait   func() error
	err    error
}

// onDisposition handles the client's outcomes of deliveries.
func (c *Conn) onDisposition(channel uint16, p *disposition) error {
	var ids []uint32
	var settled []unsettled
	err := c.withSession(channel, func(s *session) {
		if ids, settled = s.takeUnsettled(p); len(ids) == 0 {
			s.settleUntracked(p)
		}
	})
	if len(settled) == 0 {
		return err
	}
	answers := make([]pendingDisposition, len(settled))
	for i, u := range settled {
		answers[i] = pendingDisposition{link: u.link, id: ids[i], kind: p.outcome.Kind, silent: p.settled}
		answers[i].wait, answers[i].err = u.link.settle(u.tag, *p.outcome)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dispositions = append(c.dispositions, answers...)
	if !c.sendingDispositions {
		c.sendingDispositions = true
		c.linkGroup.Add(1)
		go c.sendDispositions()
	}
	return err
}

// sendDispositions waits for the results of pending dispositions, in order, and sends them. It
// ends when none are left.
func (c *Conn) sendDispositions() {
	defer c.linkGroup.Done()
	for {
		c.mu.Lock()
		answers := c.dispositions
		c.dispositions = nil
		c.sendingDispositions = len(answers) > 0
		c.mu.Unlock()
		if len(answers) == 0 {
			return
		}
		for i := range answers {
			if a := &answers[i]; a.wait != nil && a.err == nil {
				a.err = a.wait()
			}
		}
		c.pushDispositions(answers)
	}
}

// pushDispositions queues dispositions, one for each run of consecutive ids with the same outcome.
func (c *Conn) pushDispositions(answers []pendingDisposition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := 0; i < len(answers); {
		a := answers[i]
		s, last := a.link.s, a.id
		for i++; i < len(answers) && answers[i].follows(&a, last); i++ {
			last++
		}
		if a.silent || s.endSent {
			continue
		}
		state := &deliveryState{kind: a.kind}
		if a.err != nil {
			state.err = c.errorForPeer(a.err)
		}
		c.push(s.channel, &disposition{first: a.id, last: last, settled: true, state: state})
	}
}

// follows reports whether the answer fits into the same disposition as those from first to the
// delivery id last.
func (a *pendingDisposition) follows(first *pendingDisposition, last uint32) bool {
	return a.id == last+1 && a.link.s == first.link.s && a.kind == first.kind && a.silent == first.silent && a.err == nil && first.err == nil
}

// takeUnsettled removes and returns the unsettled deliveries to which a disposition applies.
func (s *session) takeUnsettled(p *disposition) (ids []uint32, settled []unsettled) {
	if !p.receiver || p.outcome == nil {
		return nil, nil
	}
	take := func(id uint32) {
		if u, ok := s.unsettled[id]; ok {
			ids, settled = append(ids, id), append(settled, u)
			delete(s.unsettled, id)
		}
	}
	if n := p.last - p.first; n < uint32(len(s.unsettled)) {
		for i := range n + 1 {
			take(p.first + i)
		}
		return ids, settled
	}
	for id := range s.unsettled {
		if id-p.first <= p.last-p.first {
			take(id)
		}
	}
	return ids, settled
}

// settleUntracked settles deliveries of [Outgoing.Send], whose outcomes are not used, unless the
// client has settled them itself.
func (s *session) settleUntracked(p *disposition) {
	if p.receiver && !p.settled {
		s.c.push(s.channel, &disposition{receiver: false, first: p.first, last: p.last, settled: true, state: &deliveryState{}})
	}
}
