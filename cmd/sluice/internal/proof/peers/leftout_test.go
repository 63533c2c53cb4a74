//go:build unix && !(kafka && postgres)

package main

import (
	"fmt"
	"testing"
)

func TestLeftOut(t *testing.T) {
	const notice = "left out: the test that needs Apache Kafka and PostgreSQL (scripts/install-kafka, scripts/install-postgres, then go test -tags kafka,postgres ./cmd/sluice/internal/proof/peers, or make test)"
	fmt.Println(notice)
	t.Log(notice)
}
