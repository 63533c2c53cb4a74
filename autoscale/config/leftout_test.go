//go:build !azurite

package config_test

import (
	"fmt"
	"testing"
)

func TestLeftOut(t *testing.T) {
	const notice = "left out: the test that reads checkpoints from Azurite (scripts/install-azurite, then go test -tags azurite ./autoscale/config, or make test)"
	fmt.Println(notice)
	t.Log(notice)
}
