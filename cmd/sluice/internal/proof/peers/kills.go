//go:build unix

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
)

// killed is what was counted after a run with kills.
type killed struct {
	Kills   int `json:"kills"`
	Events  int `json:"committed_events"`
	Lost    int `json:"lost"`
	Doubled int `json:"doubled"` // rows too many of committed events
	Aborted int `json:"aborted"` // rows of aborted transactions
	// Back is how long the slowest restart took to its first row, in seconds.
	Back float64 `json:"slowest_restart_seconds"`
}

// countKills kills each peer several times on its way through a topic.
func (l *lab) countKills(ctx context.Context) error {
	const topic = "killed"
	if err := l.fillInTransactions(ctx, topic, l.killed); err != nil {
		return err
	}
	want, err := l.committed(ctx, topic)
	if err != nil {
		return err
	}
	l.progress("topic with %d events, %d of them committed", l.killed, len(want))
	for _, p := range l.peers {
		if p.failed != nil {
			continue
		}
		k, err := l.killOften(ctx, p, topic, want)
		if err != nil {
			if err := l.drop(ctx, p, fmt.Errorf("killed: %w", err)); err != nil {
				return err
			}
			continue
		}
		l.report.addKilled(p, k)
		l.progress("%s: killed %d times: %d lost, %d doubled, %d of aborted transactions; back within %.1f s", p.Name, k.Kills, k.Lost, k.Doubled, k.Aborted, k.Back)
	}
	return nil
}

// restWithin is how long a peer may write nothing before it counts as done although
// events are missing. It exceeds the default session timeout of a consumer group.
const restWithin = 90 * time.Second

func (l *lab) killOften(ctx context.Context, p *peer, topic string, want map[place]struct{}) (*killed, error) {
	t, err := l.newTarget(ctx)
	if err != nil {
		return nil, err
	}
	defer t.drop()
	environment, err := t.environment(topic)
	if err != nil {
		return nil, err
	}
	k := &killed{Events: len(want)}
	for ; ; k.Kills++ {
		began, err := t.rows(ctx)
		if err != nil {
			return nil, err
		}
		// Doubled rows make the next kill come early, not late.
		goal := began + (len(want)-began)/(l.kills-k.Kills+1)
		last := k.Kills == l.kills
		r, err := p.start(filepath.Join(l.dir, t.name), environment)
		if err != nil {
			return nil, err
		}
		back, err := l.follow(ctx, t, r, began, goal, last, want)
		if last && err == nil {
			r.stop()
		}
		r.kill()
		if err != nil {
			return nil, err
		}
		if k.Kills > 0 {
			k.Back = max(k.Back, back.Seconds())
		}
		if last {
			break
		}
	}
	places, err := t.places(ctx)
	if err != nil {
		return nil, err
	}
	k.count(want, places)
	return k, nil
}

// follow returns when the rows have reached the goal, or, for the last process, when
// none is missing or none comes any more. back is how long the first row took.
func (l *lab) follow(ctx context.Context, t *target, r *process, began, goal int, last bool, want map[place]struct{}) (back time.Duration, err error) {
	start := time.Now()
	seen, changed := began, start
	err = r.poll(ctx, 50*time.Millisecond, func() (bool, error) {
		rows, err := t.rows(ctx)
		if err != nil {
			return false, err
		}
		if rows > began && back == 0 {
			back = time.Since(start)
		}
		if rows != seen {
			seen, changed = rows, time.Now()
		}
		quiet := time.Since(changed)
		switch {
		case !last && quiet > restWithin+startWithin:
			return false, fmt.Errorf("no row for %v: %s", quiet.Round(time.Second), r.output())
		case !last:
			return rows >= goal, nil
		case quiet > restWithin:
			return true, nil
		case rows < len(want) || quiet < 3*time.Second || quiet > 4*time.Second:
			return false, nil
		}
		places, err := t.places(ctx)
		if err != nil {
			return false, err
		}
		var now killed
		now.count(want, places)
		return now.Lost == 0, nil
	})
	return back, err
}

// places returns how many rows the events have that have any.
func (t *target) places(ctx context.Context) (map[place]int, error) {
	rows, err := t.db.Query(ctx, `SELECT hub_partition, sequence_number FROM events`)
	if err != nil {
		return nil, err
	}
	places := map[place]int{}
	var p place
	_, err = pgx.ForEachRow(rows, []any{&p.partition, &p.offset}, func() error {
		places[p]++
		return nil
	})
	return places, err
}

func (k *killed) count(want map[place]struct{}, got map[place]int) {
	for p, n := range got {
		if _, ok := want[p]; ok {
			k.Doubled += n - 1
		} else {
			k.Aborted += n
		}
	}
	for p := range want {
		if got[p] == 0 {
			k.Lost++
		}
	}
}
