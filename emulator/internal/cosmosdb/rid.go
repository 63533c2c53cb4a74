package cosmosdb

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
)

// Resource ids are numbers in base64 that begin with the id of the parent, as on Azure:
// 4 bytes for the database, 4 for the container, 8 for the document or other resource.
// The alphabet has - instead of /, because ids are part of paths.
var ridEncoding = base64.NewEncoding("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-")

func databaseRID(number uint32) string {
	return ridEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, number))
}

// containerPrefix returns the beginning of the resource ids in a container.
func containerPrefix(database, number uint32) [8]byte {
	var b [8]byte
	binary.BigEndian.PutUint32(b[:], database)
	binary.BigEndian.PutUint32(b[4:], number|1<<31)
	return b
}

// appendRID appends the resource id of a document or another kind of resource, which
// the last byte says.
func appendRID(dst []byte, prefix [8]byte, number uint64, kind byte) []byte {
	var b [16]byte
	copy(b[:], prefix[:])
	binary.LittleEndian.PutUint64(b[8:], number)
	b[15] |= kind
	return ridEncoding.AppendEncode(dst, b[:])
}

const (
	documentKind = 0x00
	rangeKind    = 0x50
)

// appendEtag appends the etag of a version, in quotes.
func appendEtag(dst []byte, version uint64, seconds uint32) []byte {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], version)
	binary.BigEndian.PutUint32(b[10:], seconds)
	dst = append(dst, '"')
	for i, n := range []int{4, 6, 8, 10, 16} {
		if i > 0 {
			dst = append(dst, '-')
		}
		from := 0
		if i > 0 {
			from = []int{4, 6, 8, 10, 16}[i-1]
		}
		dst = hex.AppendEncode(dst, b[from:n])
	}
	return append(dst, '"')
}

func etag(version uint64, seconds uint32) string { return string(appendEtag(nil, version, seconds)) }
