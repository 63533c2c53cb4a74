package pgstore_test

import (
	"errors"
	"testing"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/commitproxy"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
)

// A lost answer to COMMIT is an unknown outcome in each of pgx's ways to send statements. In some,
// pgx says of the error that nothing was sent.
func TestLostReplyInEachMode(t *testing.T) {
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		url := pgtest.Database(t)
		proxy, through := pgtest.NewTestProxy(t, url)
		s, direct := open(t, through+"&default_query_exec_mode="+mode, nil), open(t, url, nil)
		createEffects(t, direct)
		a := lease("a", 1)
		claim(t, s, a)
		for i, fault := range []commitproxy.Fault{commitproxy.LoseReply, commitproxy.CutBefore} {
			p := claim(t, s, a)
			proxy.Next(fault)
			err := commit(t.Context(), s, a, p.Position, positionAt(int64(10+i)), "x")
			if !errors.Is(err, driver.ErrUnknown) {
				t.Errorf("%s, fault %d: %v, want ErrUnknown", mode, fault, err)
			}
		}
		expect(t, direct, positionAt(10), "x")
	}
}
