//go:build linux

package attack

import "testing"

// TestInOrder: a batch may begin at any known event, and leave out only what was rejected.
func TestInOrder(t *testing.T) {
	for name, c := range map[string]struct {
		batch []int64
		want  bool
	}{
		"next":                                {[]int64{10, 11, 12}, true},
		"repetition":                          {[]int64{3, 4, 5, 6, 7, 8, 9, 10}, true},
		"repetition without a rejected event": {[]int64{4, 6, 7}, true},
		"rejected event left out first":       {[]int64{6, 7}, true},
		"rejected at the end":                 {[]int64{11, 12}, true},
		"known event left out":                {[]int64{6, 8}, false},
		"new event left out":                  {[]int64{10, 12}, false},
		"new event left out first":            {[]int64{12, 13}, false},
		"twice":                               {[]int64{10, 10}, false},
		"backwards":                           {[]int64{11, 10}, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := &receiver{highest: map[string]int64{"0": 9}, rejected: map[event]bool{{"0", 5}: true, {"0", 10}: true, {"1", 7}: true}, finding: map[string]bool{}}
			var batch []posted
			for _, id := range c.batch {
				batch = append(batch, posted{ID: id})
			}
			if v.inOrder("0", batch); (len(v.findings) == 0) != c.want {
				t.Errorf("findings %q", v.findings)
			}
		})
	}
}
