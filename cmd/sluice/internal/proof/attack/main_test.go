//go:build (postgres || mariadb || sqlserver) && linux

package attack_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// binary is the program under attack; unfenced is the same without its fence.
var binary, unfenced string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "sluice-attack-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		binary, unfenced = filepath.Join(dir, "sluice"), filepath.Join(dir, "sluice-unfenced")
		for _, args := range [][]string{{"-o", binary}, {"-o", unfenced, "-tags", "sluice_unfenced"}} {
			if out, err := exec.Command("go", append(append([]string{"build"}, args...), "../../..")...).CombinedOutput(); err != nil {
				fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
				return 1
			}
		}
		return m.Run()
	}())
}
