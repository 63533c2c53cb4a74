package demo

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/sluice-go/sluice/kafka"
)

// broker is a broker of Apache Kafka that the demo has started. It ends with the demo.
type broker struct {
	address string
	log     string // file of its output
	cmd     *exec.Cmd
	ended   chan struct{}
}

// brokerWithin bounds the start of a broker.
const brokerWithin = 3 * time.Minute

// startBroker starts a broker of an unpacked release over a directory, and returns when it answers.
func startBroker(ctx context.Context, home, dir string) (*broker, error) {
	found, err := filepath.Glob(filepath.Join(home, "libs", "kafka_*.jar"))
	if err != nil || len(found) == 0 {
		return nil, fmt.Errorf("--kafka-home %s: no libs/kafka_*.jar in it: give the directory of an unpacked release of Apache Kafka, https://kafka.apache.org/downloads", home)
	}
	java := "java"
	if javaHome := os.Getenv("JAVA_HOME"); javaHome != "" {
		java = filepath.Join(javaHome, "bin", "java")
	}
	if java, err = exec.LookPath(java); err != nil {
		return nil, errors.New("a broker of Kafka needs Java, and there is no java here: install a Java runtime (17 or later), set JAVA_HOME, or name a broker that runs with --brokers")
	}
	if err := os.MkdirAll(filepath.Join(dir, "data"), 0o700); err != nil {
		return nil, fmt.Errorf("demo's directory: %w", err)
	}
	addresses, err := freeAddresses(2)
	if err != nil {
		return nil, err
	}
	settings := filepath.Join(dir, "server.properties")
	if err := os.WriteFile(settings, fmt.Appendf(nil, brokerSettings, addresses[0], addresses[1], filepath.ToSlash(filepath.Join(dir, "data"))), 0o600); err != nil {
		return nil, fmt.Errorf("demo's directory: %w", err)
	}
	run := func(class string, args ...string) *exec.Cmd {
		// With the first compiler alone a broker starts with half the time of a processor.
		return exec.Command(java, append([]string{"-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", filepath.Join(home, "libs", "*"), class}, args...)...)
	}
	if _, err := os.Stat(filepath.Join(dir, "data", "meta.properties")); err != nil {
		if out, err := run("kafka.tools.StorageTool", "format", "--cluster-id", clusterID(), "--config", settings).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("format the broker's directory %s: %w: %s", dir, err, lastLine(out))
		}
	}
	b := &broker{address: addresses[0], log: filepath.Join(dir, "broker.log"), cmd: run("kafka.Kafka", settings), ended: make(chan struct{})}
	if err := b.start(); err != nil {
		return nil, err
	}
	if err := b.await(ctx); err != nil {
		b.stop()
		return nil, err
	}
	return b, nil
}

// start starts the process, and keeps the thread that has started it: on Linux a process that ends
// with its parent ends with that thread.
func (b *broker) start() error {
	out, err := os.Create(b.log)
	if err != nil {
		return fmt.Errorf("demo's directory: %w", err)
	}
	b.cmd.Stdout, b.cmd.Stderr = out, out
	apart(b.cmd)
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer close(b.ended)
		defer out.Close()
		err := b.cmd.Start()
		started <- err
		if err == nil {
			_ = b.cmd.Wait() // what it wrote says why
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start a broker of Kafka: %w", err)
	}
	return nil
}

// await waits until the broker answers.
func (b *broker) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, brokerWithin)
	defer cancel()
	client, err := kafka.Open([]string{b.address}, nil)
	if err != nil {
		return err
	}
	defer client.Close(context.WithoutCancel(ctx))
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if c, err := net.DialTimeout("tcp", b.address, time.Second); err != nil {
				continue
			} else if c.Close(); client.Requests().Ping(ctx) == nil {
				return nil
			}
		case <-b.ended:
			text, _ := os.ReadFile(b.log)
			return fmt.Errorf("the broker of Kafka has ended: see %s, which ends with: %s", b.log, lastLine(text))
		case <-ctx.Done():
			return fmt.Errorf("the broker of Kafka did not start: %w: see %s", ctx.Err(), b.log)
		}
	}
}

// stop kills the broker, which keeps what it has acknowledged.
func (b *broker) stop() {
	_ = b.cmd.Process.Kill() // fails if it has ended
	<-b.ended
}

// freeAddresses returns addresses of this machine on which nothing listens.
func freeAddresses(n int) (list []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer l.Close() // at the end, so that they differ
		list = append(list, l.Addr().String())
	}
	return list, nil
}

// clusterID is a random id in Kafka's form.
func clusterID() string {
	id := make([]byte, 16)
	rand.Read(id)
	id[0] &= 0x7f // an id that starts with - would be taken for an option
	return base64.RawURLEncoding.EncodeToString(id)
}

func lastLine(text []byte) string {
	text = bytes.TrimSpace(text)
	return string(text[bytes.LastIndexByte(text, '\n')+1:])
}

const brokerSettings = `# Written by sluice demo kafka at every start.
process.roles=broker,controller
node.id=1
listeners=CLIENT://%[1]s,CONTROLLER://%[2]s
advertised.listeners=CLIENT://%[1]s
controller.quorum.voters=1@%[2]s
listener.security.protocol.map=CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=CLIENT
controller.listener.names=CONTROLLER
log.dirs=%[3]s
offsets.topic.replication.factor=1
`
