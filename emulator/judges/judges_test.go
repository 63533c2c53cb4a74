//go:build judges

package judges

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/judging"
)

func TestJavaScript(t *testing.T) {
	t.Parallel()
	judging.Judge(t, judging.Node, "judge.js", surroundings(t)...)
}

func TestPython(t *testing.T) {
	t.Parallel()
	judging.Judge(t, judging.Python, "judge.py", surroundings(t)...)
}

// What the hash of partition keys is tested with is what the client computes now.
func TestVectors(t *testing.T) {
	t.Parallel()
	judging.SameAs(t, judging.Command(t, judging.Node, "vectors.js"), filepath.Join("..", "..", "internal", "keyhash", "testdata", "keys.json"))
}

// surroundings starts emulators and returns the environment in which the judges find them.
func surroundings(t *testing.T) []string {
	cert := filepath.Join(t.TempDir(), "cert.pem")
	keys := []emulator.Key{
		{Name: "all", Secret: "YWxsIHJpZ2h0cw=="},
		{Name: "reader", Secret: "dG8gbGlzdGVu", Rights: emulator.Listen},
		{Name: "writer", Secret: "dG8gc2VuZA==", Rights: emulator.Send},
	}
	hubs := make([]emulator.Hub, 50)
	names := make([]string, len(hubs))
	for i := range hubs {
		names[i] = fmt.Sprint("flights", i)
		hubs[i] = emulator.Hub{Name: names[i], Partitions: 4, ConsumerGroups: []string{"audit"}}
	}
	srv := start(t, hubs, &emulator.Config{TLSListen: "127.0.0.1:0", TLSCertOut: cert, Control: "127.0.0.1:0", Keys: keys, Dir: t.TempDir()})
	impatient := start(t, hubs, &emulator.Config{IdleTimeout: 3 * time.Second})
	as := func(k emulator.Key) string {
		return strings.NewReplacer("="+keys[0].Name+";", "="+k.Name+";", "="+keys[0].Secret, "="+k.Secret).Replace(srv.ConnectionString())
	}
	return []string{
		"HUBS=" + strings.Join(names, " "), "ALL=" + as(keys[0]), "LISTEN=" + as(keys[1]), "SEND=" + as(keys[2]),
		"TLS=" + srv.TLSConnectionString(), "CERT=" + cert, "NODE_EXTRA_CA_CERTS=" + cert,
		"IDLE=" + impatient.ConnectionString(), "CONTROL=http://" + srv.ControlAddr(),
	}
}

func start(t *testing.T, hubs []emulator.Hub, cfg *emulator.Config) *emulator.Server {
	srv, err := emulator.Start(hubs, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Errorf("close the emulator: %v", err)
		}
	})
	return srv
}
