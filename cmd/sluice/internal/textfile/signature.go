package textfile

import (
	"bytes"
	"strings"
)

// signature is how files of a format begin.
type signature struct {
	bytes string
	name  string // with its article
	next  string
	// plain: text can begin like this too, so that it counts only if the beginning is not text.
	plain bool
}

const (
	unpack   = "unpack it, and pass the files in it"
	recode   = "decompress it first, or compress it with gzip or zstd"
	export   = "export its rows as CSV or JSON lines"
	passText = "pass text, such as CSV or JSON lines"
)

var signatures = []signature{
	{bytes: "PK\x03\x04", name: "a ZIP archive", next: unpack},
	{bytes: "PK\x05\x06", name: "an empty ZIP archive", next: unpack},
	{bytes: "7z\xbc\xaf\x27\x1c", name: "a 7z archive", next: unpack},
	{bytes: "Rar!\x1a\x07", name: "a RAR archive", next: unpack},
	{bytes: "\xfd7zXZ\x00", name: "xz", next: recode},
	{bytes: "BZh", name: "bzip2", next: recode, plain: true},
	{bytes: "\x04\x22\x4d\x18", name: "LZ4", next: recode},
	{bytes: "\xff\x06\x00\x00sNaPpY", name: "Snappy", next: recode},
	{bytes: "LZIP\x01", name: "lzip", next: recode},
	{bytes: "\x1f\x9d", name: "a file of compress (.Z)", next: recode},
	{bytes: string(gzipSignature), name: "gzip within compressed data", next: "decompress it once"},
	{bytes: string(zstdSignature), name: "zstd within compressed data", next: "decompress it once"},
	{bytes: "PAR1", name: "Parquet", next: export, plain: true},
	{bytes: "Obj\x01", name: "Avro", next: export},
	{bytes: "ORC", name: "ORC", next: export, plain: true},
	{bytes: "ARROW1", name: "Arrow", next: export, plain: true},
	{bytes: "FEA1", name: "Feather", next: export, plain: true},
	{bytes: "SQLite format 3\x00", name: "a database of SQLite", next: export},
	{bytes: "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", name: "an older Office file (.xls)", next: export},
	{bytes: "\x89HDF\r\n\x1a\n", name: "HDF5", next: export},
	{bytes: "\x89PNG\r\n\x1a\n", name: "a PNG image", next: passText},
	{bytes: "\xff\xd8\xff", name: "a JPEG image", next: passText},
	{bytes: "GIF8", name: "a GIF image", next: passText, plain: true},
	{bytes: "RIFF", name: "a RIFF file (WebP, WAV)", next: passText, plain: true},
	{bytes: "%PDF-", name: "a PDF document", next: passText},
	{bytes: "%!PS-", name: "a PostScript document", next: passText},
	{bytes: "{\\rtf", name: "an RTF document", next: passText},
	{bytes: "\x7fELF", name: "a program (ELF)", next: passText},
	{bytes: "MZ", name: "a program of Windows", next: passText, plain: true},
}

// A tar archive has its signature behind the first file's name and rights.
const (
	tarSignature = "ustar"
	tarAt        = 257
)

// beginsSignature reports whether more must be read to know what the input is.
func beginsSignature(head []byte) bool {
	for _, mark := range []string{string(gzipSignature), string(zstdSignature), markUTF8, markUTF16BE, markUTF32LE, markUTF32BE} {
		if len(head) < len(mark) && strings.HasPrefix(mark, string(head)) {
			return true
		}
	}
	for _, s := range signatures {
		if !s.plain && len(head) < len(s.bytes) && strings.HasPrefix(s.bytes, string(head)) {
			return true
		}
	}
	return false
}

// foreign returns why the beginning is that of a known format that is not text. It sees what was
// decompressed, so that a signature of gzip is one within compressed data.
func foreign(head []byte) error {
	for _, s := range signatures {
		if !bytes.HasPrefix(head, []byte(s.bytes)) || s.plain && isText(head) {
			continue
		}
		if s.bytes == "PK\x03\x04" {
			s = zipped(head, s)
		}
		return &Error{Cause: s.name + ", which cannot be read", Next: s.next}
	}
	if len(head) > tarAt && bytes.HasPrefix(head[tarAt:], []byte(tarSignature)) {
		return &Error{Cause: "a tar archive, which cannot be read", Next: unpack}
	}
	return nil
}

// zipped returns which of the formats that are ZIP archives a file has.
func zipped(head []byte, archive signature) signature {
	for _, office := range []struct{ mark, name string }{
		{"xl/", "an Excel workbook (.xlsx)"},
		{"word/", "a Word document (.docx)"},
		{"opendocument.spreadsheet", "an OpenDocument spreadsheet (.ods)"},
		{"[Content_Types].xml", "an Office file"},
	} {
		if bytes.Contains(head, []byte(office.mark)) {
			return signature{name: office.name, next: export}
		}
	}
	return archive
}

// isText reports whether nothing of the beginning is foreign to UTF-8 text.
func isText(head []byte) bool {
	return checkText(head, UTF8) == nil && bytes.IndexFunc(head, func(r rune) bool {
		return r < ' ' && r != '\t' && r != '\n' && r != '\r'
	}) < 0
}
