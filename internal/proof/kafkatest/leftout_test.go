//go:build !kafka

package kafkatest_test

import (
	"fmt"
	"testing"
)

func TestLeftOut(t *testing.T) {
	const notice = "left out: the tests that need Apache Kafka (scripts/install-kafka, then go test -tags kafka ./internal/proof/kafkatest, or make test)"
	fmt.Println(notice)
	t.Log(notice)
}
