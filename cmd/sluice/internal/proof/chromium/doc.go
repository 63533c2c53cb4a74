// Package chromium tests the dashboard of real sluice processes in a real browser:
// Playwright drives Chromium, axe checks accessibility, and Pebble, with which Let's
// Encrypt tests clients, issues certificates.
//
// scripts/install-chromium installs them. The screenshots under docs/screenshots are
// made by
//
//	go test ./cmd/sluice/internal/proof/chromium -screenshots "$PWD/docs/screenshots"
package chromium
