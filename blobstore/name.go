package blobstore

import (
	"fmt"
	"strings"

	"github.com/sluice-go/sluice/driver"
)

// Limits of blob names:
// https://learn.microsoft.com/rest/api/storageservices/naming-and-referencing-containers--blobs--and-metadata
const (
	maxName    = 1024
	maxSegment = 254
	maxPrefix  = 256
)

// Folders of a group's blobs.
const (
	partitionsFolder  = "partitions"
	deadLettersFolder = "letters" // indexes
	bodiesFolder      = "bodies"
)

// folder returns the prefix of the names of the blobs of one kind.
func (s *Store) folder(group driver.Group, kind string) (string, error) {
	return s.join(group, kind, "")
}

// name returns the name of a partition's blob.
func (s *Store) name(group driver.Group, partition string) (string, error) {
	return s.join(group, partitionsFolder, escape(partition))
}

func (s *Store) join(group driver.Group, kind string, rest ...string) (string, error) {
	segments := append([]string{escape(group.Namespace), escape(group.Topic), escape(group.Name), kind}, rest...)
	for _, g := range segments {
		if len(g) > maxSegment {
			return "", fmt.Errorf("%v: a name of %d bytes is too long for Azure Storage, which takes %d", group, len(g), maxSegment)
		}
	}
	name := s.prefix + strings.Join(segments, "/")
	if len(name) > maxName {
		return "", fmt.Errorf("%v: the blob's name of %d bytes is too long for Azure Storage, which takes %d", group, len(name), maxName)
	}
	return name, nil
}

// escape converts text into a segment of a blob's name, each text into another one. Letters,
// digits, "_", "-", "$" and dots inside stay; every other byte becomes "~" and two hexadecimal
// digits. The empty text becomes "~".
func escape(text string) string {
	if text == "" {
		return "~"
	}
	var b strings.Builder
	for i := range len(text) {
		c := text[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-', c == '$',
			c == '.' && i > 0 && i < len(text)-1:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "~%02X", c)
		}
	}
	return b.String()
}

// unescape is the inverse of escape; ok is false for what escape never makes.
func unescape(segment string) (text string, ok bool) {
	if segment == "~" {
		return "", true
	}
	var b strings.Builder
	for i := 0; i < len(segment); i++ {
		c := segment[i]
		if c == '~' {
			var n int
			if len(segment) < i+3 {
				return "", false
			}
			if _, err := fmt.Sscanf(segment[i+1:i+3], "%02X", &n); err != nil {
				return "", false
			}
			c = byte(n)
			i += 2
		}
		b.WriteByte(c)
	}
	return b.String(), escape(b.String()) == segment
}
