//go:build unix

package pipelines

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"
)

// stubborn is a consumer whose batch goes on until it is cancelled.
type stubborn struct{ ended chan struct{} }

func (s stubborn) Run(ctx context.Context) error {
	defer close(s.ended)
	<-ctx.Done()
	return ctx.Err()
}

func (s stubborn) Stop(context.Context) error {
	<-s.ended
	return nil
}

// writer calls a function for each line.
type writer func(line []byte)

func (w writer) Write(line []byte) (int, error) {
	w(line)
	return len(line), nil
}

// A second signal counts as soon as the log says that the first one has come.
func TestSecondSignal(t *testing.T) {
	signals := make(chan os.Signal, 1) // without it the signal would end the test
	signal.Notify(signals, syscall.SIGTERM)
	defer signal.Stop(signals)
	log := slog.New(slog.NewTextHandler(writer(func(line []byte) {
		if !bytes.Contains(line, []byte("msg=stopping")) {
			return
		}
		if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		<-signals // it goes to those who wait for signals by now
	}), nil))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	interrupted, interrupt := context.WithCancel(ctx)
	interrupt()
	if err := Run(ctx, interrupted, stubborn{make(chan struct{})}, &RunConfig{StopTimeout: time.Hour, Log: log}); err != nil || ctx.Err() != nil {
		t.Errorf("got %v, and the context's error is %v", err, ctx.Err())
	}
}
