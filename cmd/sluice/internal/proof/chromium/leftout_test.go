//go:build !chromium

package chromium

import (
	"fmt"
	"testing"
)

func TestLeftOut(t *testing.T) {
	const notice = "left out: the dashboard in a real browser (scripts/install-chromium, then go test -tags chromium ./cmd/sluice/internal/proof/chromium, or make test)"
	fmt.Println(notice)
	t.Log(notice)
}
