package main

import (
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/deadletters"
)

// The pace of retries counts those that failed again, and gives the time that the others take.
func TestPaceOfRetries(t *testing.T) {
	failed, waiting := make([]driver.DeadLetter, 100), make([]driver.DeadLetter, 2000)
	for _, c := range []struct {
		so   deadletters.Outcome
		took time.Duration
		want int
		left time.Duration
	}{
		{deadletters.Outcome{Waiting: waiting}, time.Second, 0, 0},
		{deadletters.Outcome{Applied: 900, Failed: failed, Waiting: waiting}, 2 * time.Second, 500, 4 * time.Second},
		{deadletters.Outcome{Applied: 1, Waiting: waiting}, 10 * time.Second, 1, 20000 * time.Second},
		{deadletters.Outcome{Applied: 10, Failed: failed}, time.Second, 110, 0},
	} {
		if perSecond, left := pace(&c.so, c.took); perSecond != c.want || left != c.left {
			t.Errorf("%d applied, %d failed, %d waiting after %v: %d a second, %v left; want %d, %v", c.so.Applied, len(c.so.Failed), len(c.so.Waiting), c.took, perSecond, left, c.want, c.left)
		}
	}
}
