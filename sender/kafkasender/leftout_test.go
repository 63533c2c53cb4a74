//go:build !kafka

package kafkasender_test

import (
	"fmt"
	"testing"
)

func TestLeftOut(t *testing.T) {
	const notice = "left out: the tests that need Apache Kafka (scripts/install-kafka, then go test -tags kafka ./sender/kafkasender, or make test)"
	fmt.Println(notice)
	t.Log(notice)
}
