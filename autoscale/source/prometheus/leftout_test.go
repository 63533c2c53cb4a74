//go:build !prometheus

package prometheus

import (
	"fmt"
	"testing"
)

func TestLeftOut(t *testing.T) {
	const notice = "left out: the test that asks a real Prometheus (apt-get install prometheus, then go test -tags prometheus ./autoscale/source/prometheus)"
	fmt.Println(notice)
	t.Log(notice)
}
