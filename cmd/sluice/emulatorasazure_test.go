package main_test

import (
	"strings"
	"testing"
)

// The list of behaviours may follow the flag, with or without an equals sign; an unknown
// name is one line with the name that was meant.
func TestEmulatorAsAzure(t *testing.T) {
	t.Parallel()
	serve := []string{"emulator", "serve", "--listen", "127.0.0.1:0", "--hub", "flights=1"}
	for _, args := range [][]string{{"--as-azure"}, {"--as-azure", "known-groups,geo"}, {"--as-azure=all,idle-link=1m"}, {"--as-azure", "--as-azure-seed", "7"}} {
		p := start(t, "", nil, append(serve[:len(serve):len(serve)], args...)...)
		connectionOf(t, p)
	}
	for want, args := range map[string][]string{
		`--as-azure: unknown behaviour "known-group": did you mean known-groups?`: {"--as-azure", "known-group"},
		`did you mean stale-runtime?`:                          {"--as-azure=all,stale-runtime-"},
		`behaviour idle-link: "10": write a positive duration`: {"--as-azure", "idle-link=10"},
		`unknown command "geo"`:                                {"geo"},
		`unknown command "all"`:                                {"--as-azure", "all", "geo"},
	} {
		code, out, err := invoke(t, "", nil, append(serve[:len(serve):len(serve)], args...)...)
		if code != 2 || !strings.Contains(err, want) || strings.Count(err, "\n") != 1 || out != "" {
			t.Errorf("%q: exit code %d: %s%s", args, code, out, err)
		}
	}
}
