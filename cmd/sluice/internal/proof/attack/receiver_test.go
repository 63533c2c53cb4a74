//go:build linux

package attack

import "testing"

// TestInOrder: a batch may begin at any known event, and leave out only known ones.
func TestInOrder(t *testing.T) {
	for name, c := range map[string]struct {
		batch []int64
		want  bool
	}{
		"next":                            {[]int64{10, 11, 12}, true},
		"repetition":                      {[]int64{3, 4, 5, 6, 7, 8, 9, 10}, true},
		"one that has failed":             {[]int64{5}, true},
		"those that have failed":          {[]int64{5, 8}, true},
		"one that has failed, then new":   {[]int64{5, 10, 11}, true},
		"new event left out":              {[]int64{10, 12}, false},
		"new event left out first":        {[]int64{12, 13}, false},
		"new event left out after failed": {[]int64{5, 11}, false},
		"twice":                           {[]int64{10, 10}, false},
		"known twice":                     {[]int64{5, 5}, false},
		"backwards":                       {[]int64{11, 10}, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := &receiver{highest: map[string]int64{"0": 9}, finding: map[string]bool{}}
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
