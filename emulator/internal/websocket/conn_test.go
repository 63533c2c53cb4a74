package websocket

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
)

var endpoint = Endpoint{Path: "/here", Protocols: []string{"bytes", "other"}}

// serve accepts one connection and hands it to f; wait waits until that returns.
func serve(t testing.TB, e Endpoint, f func(net.Conn)) (addr string, wait func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l = e.Listener(l)
	done := make(chan struct{})
	go func() {
		defer close(done)
		nc, err := l.Accept()
		if err != nil {
			return
		}
		defer nc.Close()
		_ = nc.SetDeadline(time.Now().Add(2 * time.Minute))
		f(nc)
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	return l.Addr().String(), func() { <-done }
}

// inBubble runs f on the server's end of a connection over which client is connected in a bubble:
// there, a deadline cannot pass while either of the two has something to do.
func inBubble(t *testing.T, f func(nc net.Conn), client func(ctx context.Context, ws *websocket.Conn)) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		var server sync.WaitGroup
		server.Go(func() {
			defer far.Close()
			f(newConn(far, endpoint))
		})
		defer server.Wait()
		defer near.Close()
		transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return near, nil }}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		ws, _, err := websocket.Dial(ctx, "ws://server/here", &websocket.DialOptions{Subprotocols: []string{"bytes"}, HTTPClient: &http.Client{Transport: transport}})
		if err != nil {
			t.Fatal(err)
		}
		client(ctx, ws)
	})
}

func echo(nc net.Conn) { _, _ = io.Copy(nc, nc) }

// dial connects as a client that speaks plain bytes.
func dial(t testing.TB, addr, text string) net.Conn {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(2 * time.Minute))
	if _, err := io.WriteString(nc, text); err != nil {
		t.Fatal(err)
	}
	return nc
}

const request = "GET /here HTTP/1.1\r\nHost: host:80\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n" +
	"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: chat, bytes\r\n"

// opened is a client whose request was granted.
func opened(t testing.TB, addr string) (net.Conn, *bufio.Reader) {
	t.Helper()
	nc := dial(t, addr, request+"\r\n")
	r := bufio.NewReader(nc)
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	// The key and the answer are those of RFC 6455, section 1.3.
	if res.StatusCode != 101 || res.Header.Get("Sec-WebSocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" || res.Header.Get("Sec-WebSocket-Protocol") != "bytes" {
		t.Fatalf("got %s, %v", res.Status, res.Header)
	}
	return nc, r
}

// The first bytes of frames (RFC 6455, section 5.2).
const (
	final  = 0x80 // the last frame of a message
	masked = 0x80 // in the second byte

	opContinuation = 0
	opBinary       = 2
	opClose        = 8
	opPing         = 9
)

// frame is one that a client sends.
func frame(first byte, payload []byte) []byte {
	b := []byte{first}
	switch n := len(payload); {
	case n < 126:
		b = append(b, masked|byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, masked|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, masked|127), uint64(n))
	}
	mask := [4]byte{1, 2, 3, 4}
	b = append(b, mask[:]...)
	for i, p := range payload {
		b = append(b, p^mask[i&3])
	}
	return b
}

// A connection that doesn't begin with a request is passed on unchanged.
func TestPlain(t *testing.T) {
	for _, text := range []string{"AMQP\x00\x01\x00\x00", "GE", "GET", "POST / HTTP/1.1\r\n\r\n", strings.Repeat("long ", 20_000)} {
		addr, _ := serve(t, endpoint, func(nc net.Conn) {
			echo(nc)
			if err := nc.(*conn).CloseWrite(); err != nil {
				t.Error(err)
			}
		})
		nc := dial(t, addr, "")
		go func() {
			_, _ = io.WriteString(nc, text)
			_ = nc.(*net.TCPConn).CloseWrite()
		}()
		got, err := io.ReadAll(nc)
		if want := text; len(text) >= 4 && string(got) != want || err != nil {
			t.Errorf("%.20q: got %.20q, %v", text, got, err)
		}
	}
}

// An independent client, with messages of all sizes in both directions.
func TestClient(t *testing.T) {
	addr, _ := serve(t, endpoint, echo)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, "ws://"+addr+"/here", &websocket.DialOptions{Subprotocols: []string{"other"}})
	if err != nil {
		t.Fatal(err)
	}
	if ws.Subprotocol() != "other" {
		t.Errorf("subprotocol %q", ws.Subprotocol())
	}
	nc := websocket.NetConn(ctx, ws, websocket.MessageBinary)
	rng := rand.New(rand.NewPCG(1, 2))
	var sent []byte
	for _, n := range []int{0, 1, 125, 126, 127, 65535, 65536, 200_000} {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		sent = append(sent, b...)
	}
	go func() {
		for rest := sent; len(rest) > 0; {
			n := min(len(rest), rng.IntN(70_000))
			if _, err := nc.Write(rest[:n]); err != nil {
				t.Error(err)
				return
			}
			rest = rest[n:]
		}
	}()
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(nc, got); err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("got something else back, %v", err)
	}
	if err := ws.Close(websocket.StatusNormalClosure, "done"); err != nil {
		t.Errorf("close: %v", err)
	}
}

func TestRefusedRequests(t *testing.T) {
	for name, v := range map[string]struct {
		old, new string
		status   int
	}{
		"another path":           {"/here", "/there", 404},
		"no upgrade":             {"Upgrade: WebSocket", "Upgrade: h2c", 426},
		"an upgrade not asked":   {"keep-alive, Upgrade", "keep-alive", 426},
		"another version":        {"Version: 13", "Version: 8", 400},
		"no key":                 {"Sec-WebSocket-Key", "X-Key", 400},
		"a short key":            {"dGhlIHNhbXBsZSBub25jZQ==", "dGhl", 400},
		"another subprotocol":    {"chat, bytes", "chat", 400},
		"no subprotocol":         {"Sec-WebSocket-Protocol: chat, bytes\r\n", "", 400},
		"a page of another host": {"Host: host:80\r\n", "Host: host:80\r\nOrigin: http://elsewhere:80\r\n", 403},
		"an origin of no form":   {"Host: host:80\r\n", "Host: host:80\r\nOrigin: null\r\n", 403},
		"a page of this host":    {"Host: host:80\r\n", "Host: host:80\r\nOrigin: https://HOST:8080\r\n", 101},
		"path in another case":   {"/here", "/HERE/", 101},
		"a huge header":          {"Host: host:80\r\n", "Host: host:80\r\nX: " + strings.Repeat("x", 20_000) + "\r\n", 431},
	} {
		var readErr error
		addr, wait := serve(t, endpoint, func(nc net.Conn) {
			_, readErr = nc.Read(make([]byte, 10))
			_ = nc.(*conn).Conn.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, nc.(*conn).Conn)
		})
		nc := dial(t, addr, strings.Replace(request, v.old, v.new, 1)+"\r\n")
		res, err := http.ReadResponse(bufio.NewReader(nc), nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		text, err := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != v.status || v.status != 101 && (len(text) == 0 || err != nil) {
			t.Errorf("%s: got %s %q, %v, want %d", name, res.Status, text, err, v.status)
		}
		nc.Close()
		wait()
		if readErr == nil && v.status != 101 {
			t.Errorf("%s: a read succeeded", name)
		}
	}
	any := endpoint
	any.AnyOrigin = true
	addr, _ := serve(t, any, echo)
	nc := dial(t, addr, request+"Origin: http://elsewhere\r\n\r\n")
	if res, err := http.ReadResponse(bufio.NewReader(nc), nil); err != nil || res.StatusCode != 101 {
		t.Errorf("any origin: %v, %v", res, err)
	}
}

// A client that sends text ends its connection, and is sent the reason.
func TestText(t *testing.T) {
	var first, again error
	addr, wait := serve(t, endpoint, func(nc net.Conn) {
		_, first = nc.Read(make([]byte, 10))
		_, again = nc.Read(make([]byte, 10))
		if _, err := nc.Write([]byte("x")); err == nil {
			t.Error("a write after the close frame")
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, "ws://"+addr+"/here", &websocket.DialOptions{Subprotocols: []string{"bytes"}})
	if err != nil {
		t.Fatal(err)
	}
	defer ws.CloseNow()
	if err := ws.Write(ctx, websocket.MessageText, []byte("hi")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ws.Read(ctx); websocket.CloseStatus(err) != websocket.StatusUnsupportedData {
		t.Errorf("the client got %v", err)
	}
	wait()
	if !errors.Is(first, errNotBinary) || !errors.Is(again, errNotBinary) {
		t.Errorf("got %v, then %v", first, again)
	}
}

// A connection that ends within a frame ends with an error.
func TestCutOff(t *testing.T) {
	whole := frame(final|opBinary, []byte("hello"))
	for n := range len(whole) {
		var err error
		addr, wait := serve(t, endpoint, func(nc net.Conn) { _, err = io.ReadAll(nc) })
		nc, _ := opened(t, addr)
		if _, err := nc.Write(whole[:n]); err != nil {
			t.Fatal(err)
		}
		nc.Close()
		wait()
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("after %d bytes: %v", n, err)
		}
	}
}

// After a read deadline has passed, the connection can still be written to, and
// closed by a handshake: a server sends its close frame then.
func TestReadDeadline(t *testing.T) {
	inBubble(t, func(nc net.Conn) {
		b := make([]byte, 10)
		if n, err := nc.Read(b); err != nil || string(b[:n]) != "a" {
			t.Errorf("got %q, %v", b[:n], err)
		}
		_ = nc.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		var ne net.Error
		if _, err := nc.Read(b); !errors.As(err, &ne) || !ne.Timeout() {
			t.Errorf("got %v, want a timeout", err)
		}
		if _, err := nc.Write([]byte("last words")); err != nil {
			t.Error(err)
		}
		if err := nc.(*conn).CloseWrite(); err != nil {
			t.Error(err)
		}
	}, func(ctx context.Context, ws *websocket.Conn) {
		nc := websocket.NetConn(ctx, ws, websocket.MessageBinary)
		if _, err := nc.Write([]byte("a")); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(nc); err != nil || string(got) != "last words" {
			t.Errorf("got %q, %v", got, err)
		}
	})
}

// A ping is answered after the deadline of the last write has passed.
func TestPingAfterWriteDeadline(t *testing.T) {
	inBubble(t, func(nc net.Conn) {
		if _, err := nc.Read(make([]byte, 10)); err != nil {
			t.Error(err)
		}
		_ = nc.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
		if _, err := nc.Write([]byte("b")); err != nil {
			t.Error(err)
		}
		time.Sleep(100 * time.Millisecond)
		if _, err := nc.Read(make([]byte, 10)); !errors.Is(err, io.EOF) {
			t.Errorf("got %v", err)
		}
	}, func(ctx context.Context, ws *websocket.Conn) {
		if err := ws.Write(ctx, websocket.MessageBinary, []byte("a")); err != nil {
			t.Fatal(err)
		}
		if _, got, err := ws.Read(ctx); err != nil || string(got) != "b" {
			t.Fatalf("got %q, %v", got, err)
		}
		var pong sync.WaitGroup
		pong.Go(func() { _, _, _ = ws.Read(ctx) })
		if err := ws.Ping(ctx); err != nil {
			t.Error(err)
		}
		if err := ws.Close(websocket.StatusNormalClosure, ""); err != nil {
			t.Error(err)
		}
		pong.Wait()
	})
}

// A frame that declares 2^62 bytes, and frames without payload that do not end, are refused at
// once, though no deadline is set.
func TestRefusedFrames(t *testing.T) {
	huge := binary.BigEndian.AppendUint64([]byte{final | opBinary, masked | 127}, 1<<62)
	for want, sent := range map[string][]byte{
		"declares 4611686018427387904 bytes": append(huge, 1, 2, 3, 4),
		"WebSocket frames in a row without":  bytes.Repeat(frame(final|opBinary, nil), 1000),
	} {
		var got error
		addr, wait := serve(t, endpoint, func(nc net.Conn) {
			_, got = nc.Read(make([]byte, 8))
		})
		nc, _ := opened(t, addr)
		if _, err := nc.Write(sent); err != nil {
			t.Fatal(err)
		}
		wait()
		if got == nil || !strings.Contains(got.Error(), want) {
			t.Errorf("got %v, want that it %s", got, want)
		}
	}
}
