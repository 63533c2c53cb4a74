package finalanswer

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"testing"
)

// TestSwitchedProtocols: a server that answers 101 and then says nothing does not hold a client.
func TestSwitchedProtocols(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	closed := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			closed <- err
			return
		}
		defer conn.Close()
		answer := []byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: nothing\r\n\r\n")
		buffer := make([]byte, 64<<10)
		if _, err = conn.Read(buffer); err == nil {
			_, err = conn.Write(answer)
		}
		if err == nil {
			_, err = conn.Read(buffer) // until the client closes
		}
		closed <- err
	}()
	client := &http.Client{Transport: Transport(&http.Transport{})}
	resp, err := client.Get(fmt.Sprintf("http://%s/", listener.Addr()))
	if !errors.Is(err, ErrSwitched) {
		t.Errorf("got %v, %v; want ErrSwitched", resp, err)
	}
	if err := <-closed; err == nil {
		t.Error("the client sent more")
	}
}
