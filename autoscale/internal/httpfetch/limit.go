package httpfetch

import (
	"fmt"
	"io"
)

// Limit returns a response's body that ends with an error after a number of bytes.
func Limit(body io.ReadCloser, bytes int64) io.ReadCloser {
	return &limited{ReadCloser: body, limit: bytes, left: bytes}
}

type limited struct {
	io.ReadCloser
	limit, left int64
}

func (l *limited) Read(p []byte) (int, error) {
	if l.left < 0 {
		return 0, fmt.Errorf("the response is larger than %d bytes", l.limit)
	}
	n, err := l.ReadCloser.Read(p[:min(int64(len(p)), l.left+1)])
	l.left -= int64(n)
	return n, err
}
