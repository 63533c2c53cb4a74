// Package chromium looks at the dashboard as people do: real processes of
// sluice, and a real browser, driven by Playwright and judged by axe for
// whether everybody can use it; and Pebble, the authority that Let's Encrypt
// tests clients with.
//
// scripts/install-chromium installs them. The screenshots under
// docs/screenshots are made by
//
//	go test -tags chromium ./cmd/sluice/internal/proof/chromium -screenshots ../../docs/screenshots
package chromium
