//go:build !kafka

package kafka

import (
	"fmt"
	"testing"
)

func TestLeftOut(t *testing.T) {
	const notice = "left out: the tests that need Apache Kafka (scripts/install-kafka, then go test -tags kafka ./kafka, or make test)"
	fmt.Println(notice)
	t.Log(notice)
}
