package pipeline

import (
	"crypto/tls"

	"github.com/sluice-go/sluice/internal/config/strictyaml"
	"github.com/sluice-go/sluice/kafka"
)

// readTLS reads true, false, or the settings of TLS. It returns nil for false, and if there is a
// problem.
func readTLS(n strictyaml.Node) *tls.Config {
	if !n.IsMapping() {
		var on bool
		if n.Bool(&on) && on {
			return newTLS()
		}
		return nil
	}
	var files kafka.TLSFiles
	ok := n.Object(strictyaml.Keys{
		"ca_file": func(n strictyaml.Node) {
			if !n.Text(&files.CA) {
				return
			}
			if _, err := (kafka.TLSFiles{CA: files.CA}).Config(); err != nil {
				n.Fail("%w", err)
				files.CA = ""
			}
		},
		"cert_file":   func(n strictyaml.Node) { n.Text(&files.Certificate) },
		"key_file":    func(n strictyaml.Node) { n.Text(&files.Key) },
		"server_name": func(n strictyaml.Node) { n.Text(&files.ServerName) },
	})
	if !ok {
		return nil
	}
	if (files.Certificate != "") != (files.Key != "") {
		n.Fail("needs cert_file and key_file together: the certificate of this client, and its key")
		return nil
	}
	config, err := files.Config()
	if err != nil {
		n.Fail("%w", err)
		return nil
	}
	return config
}

func newTLS() *tls.Config { return &tls.Config{MinVersion: tls.VersionTLS12} }
