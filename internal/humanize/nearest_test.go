package humanize

import (
	"strings"
	"testing"
)

func TestNearest(t *testing.T) {
	among := []string{"consumer_group", "connection", "hub", "tls_ca_file"}
	for word, want := range map[string]string{
		"consumer_grup": "consumer_group", "consumergroup": "consumer_group", "Consumer-Group": "consumer_group", "conection": "connection",
		"hbu": "hub", "huh": "hub", "tls_file": "", "zebra": "", "x": "", "": "", strings.Repeat("hub", 1000): "",
	} {
		if got := Nearest(word, among); got != want {
			t.Errorf("%.30s: %q, want %q", word, got, want)
		}
	}
}
