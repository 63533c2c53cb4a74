package commitproxy

import "github.com/sluice-go/sluice/storetest"

var faults = map[storetest.Loss]Fault{storetest.NeverArrives: CutBefore, storetest.AnswerLost: LoseReply, storetest.ArrivesLate: DeliverLate}

// Lose is a [storetest.Lose] for the store whose connections lead through the proxy. It takes the
// place of the function of [Proxy.OnCommit].
func (p *Proxy) Lose(how storetest.Loss, underway func()) (deliver func()) {
	lost := false
	p.OnCommit(func(int) Fault {
		if lost {
			return None
		}
		lost = true
		if underway != nil {
			underway()
		}
		return faults[how]
	})
	return func() { p.Deliver() }
}
