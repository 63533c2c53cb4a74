package limiter

import "time"

// second records the grants of the last second, to a resolution: grants closer
// together count as granted at the time of the last of them, which never allows too
// much.
type second struct {
	n            int             // total
	began, ended time.Duration   // of the last entry: its first and its last grant
	log          [logSize]grants // a ring
	first, next  uint
}

type grants struct {
	time time.Duration
	n    int
}

const (
	resolution = 500 * time.Microsecond
	logSize    = 1 << 11 // more entries than a second can have
)

// add adds n grants.
func (s *second) add(now time.Duration, n int) {
	if s.first == s.next || now-s.began >= resolution {
		s.began = now
		s.log[s.next%logSize] = grants{}
		s.next++
	}
	g := &s.log[(s.next-1)%logSize]
	g.time, s.ended = now, now
	g.n += n
	s.n += n
}

// forget removes the grants that are a second old.
func (s *second) forget(now time.Duration) {
	for s.first != s.next && s.log[s.first%logSize].time <= now-time.Second {
		s.n -= s.log[s.first%logSize].n
		s.first++
	}
}

// whenBelow returns the time from which on fewer than n grants are left.
func (s *second) whenBelow(n int) (at time.Duration) {
	left := s.n
	for i := s.first; left >= n && i != s.next; i++ {
		left -= s.log[i%logSize].n
		at = s.log[i%logSize].time + time.Second
	}
	return at
}
