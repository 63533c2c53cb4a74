// Package keda is an external scaler for KEDA: it measures the lag of consumer groups by
// their exact positions, and KEDA scales by it.
package keda

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/sluice-go/sluice/autoscale/config"
	"github.com/sluice-go/sluice/autoscale/source/lag"
	"github.com/sluice-go/sluice/cmd/sluice/internal/keda/externalscaler"
)

const (
	// measureTimeout bounds a measurement.
	measureTimeout = 20 * time.Second
	// maxRequest bounds a request in bytes.
	maxRequest = 64 << 10
	// streamEvery is the time between two measurements for a stream.
	streamEvery = 5 * time.Second
	// stopTimeout bounds the end of requests that are under way.
	stopTimeout = 5 * time.Second
	// clientSilence is how long a client may be silent before it is asked whether it is
	// there, so that the stream of one that has vanished ends.
	clientSilence = time.Minute
	// maxError is the length in bytes of an error's text for KEDA.
	maxError = 500
)

// Server answers KEDA. It is safe for concurrent use.
type Server struct {
	// Every method must be here: a missing one does not compile, where the generated default
	// would answer Unimplemented.
	externalscaler.UnsafeExternalScalerServer

	resources map[string]*resource
	log       *slog.Logger
	stopped   context.Context // ends when the server stops
}

// Serve answers on listener until ctx ends, and closes it. A nil tls means plain text.
func Serve(ctx context.Context, listener net.Listener, lags []config.Lag, tls *tls.Config, log *slog.Logger) error {
	stopped, stop := context.WithCancel(context.Background())
	defer stop()
	s := &Server{resources: map[string]*resource{}, log: log, stopped: stopped}
	for _, l := range lags {
		s.resources[l.Name] = newResource(l)
	}
	options := []grpc.ServerOption{grpc.MaxRecvMsgSize(maxRequest), grpc.MaxConcurrentStreams(256), grpc.ConnectionTimeout(10 * time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: clientSilence})}
	if tls != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(tls)))
	}
	g := grpc.NewServer(options...)
	externalscaler.RegisterExternalScalerServer(g, s)
	probes := health.NewServer()
	grpc_health_v1.RegisterHealthServer(g, probes)
	served := make(chan error, 1)
	go func() { served <- g.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	probes.Shutdown()
	stop()
	force := time.AfterFunc(stopTimeout, g.Stop)
	defer force.Stop()
	g.GracefulStop()
	return <-served
}

// ask reads the metadata of a ScaledObject, and measures.
func (s *Server) ask(ctx context.Context, ref *externalscaler.ScaledObjectRef) (*trigger, lag.Measurement, error) {
	t, err := s.trigger(ref)
	if err != nil {
		return nil, lag.Measurement{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, measureTimeout)
	defer cancel()
	m, err := t.resource.measure(ctx)
	if err != nil {
		s.log.Warn("measuring the lag failed", "resource", t.resource.Name, "scaled_object", fmt.Sprintf("%.100s/%.100s", ref.GetNamespace(), ref.GetName()), "error", err)
		return nil, m, status.Error(codes.Unavailable, "sluice: "+oneLine(err))
	}
	return t, m, nil
}

func (s *Server) trigger(ref *externalscaler.ScaledObjectRef) (*trigger, error) {
	t, err := readTrigger(s.resources, ref.GetScalerMetadata())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, "sluice: "+oneLine(err))
	}
	return t, nil
}

// IsActive implements the interface of KEDA.
func (s *Server) IsActive(ctx context.Context, ref *externalscaler.ScaledObjectRef) (*externalscaler.IsActiveResponse, error) {
	t, m, err := s.ask(ctx, ref)
	if err != nil {
		return nil, err
	}
	return &externalscaler.IsActiveResponse{Result: t.active(m)}, nil
}

// StreamIsActive implements the interface of KEDA, for triggers of the type external-push.
// It sends whether the resource is active at once, and when that changes. It ends with an
// error if the lag cannot be measured; KEDA then calls it again.
func (s *Server) StreamIsActive(ref *externalscaler.ScaledObjectRef, stream grpc.ServerStreamingServer[externalscaler.IsActiveResponse]) error {
	tick := time.NewTicker(streamEvery)
	defer tick.Stop()
	for first, before := true, false; ; first = false {
		t, m, err := s.ask(stream.Context(), ref)
		if err != nil {
			return err
		}
		if now := t.active(m); first || now != before {
			before = now
			if err := stream.Send(&externalscaler.IsActiveResponse{Result: now}); err != nil {
				return err
			}
		}
		select {
		case <-tick.C:
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-s.stopped.Done():
			return status.Error(codes.Unavailable, "sluice: the scaler stops")
		}
	}
}

// GetMetricSpec implements the interface of KEDA.
func (s *Server) GetMetricSpec(_ context.Context, ref *externalscaler.ScaledObjectRef) (*externalscaler.GetMetricSpecResponse, error) {
	t, err := s.trigger(ref)
	if err != nil {
		return nil, err
	}
	return &externalscaler.GetMetricSpecResponse{MetricSpecs: []*externalscaler.MetricSpec{{
		MetricName: t.metricName(), TargetSize: int64(math.Ceil(t.target)), TargetSizeFloat: t.target,
	}}}, nil
}

// GetMetrics implements the interface of KEDA.
func (s *Server) GetMetrics(ctx context.Context, r *externalscaler.GetMetricsRequest) (*externalscaler.GetMetricsResponse, error) {
	t, m, err := s.ask(ctx, r.GetScaledObjectRef())
	if err != nil {
		return nil, err
	}
	if name := r.GetMetricName(); name != t.metricName() {
		return nil, status.Errorf(codes.InvalidArgument, "sluice: metric %.100q: the metric of resource %s is %s", name, t.resource.Name, t.metricName())
	}
	v := t.value(m)
	return &externalscaler.GetMetricsResponse{MetricValues: []*externalscaler.MetricValue{{
		MetricName: t.metricName(), MetricValue: int64(math.Ceil(v)), MetricValueFloat: v,
	}}}, nil
}

// oneLine is an error's text as one line of bounded length.
func oneLine(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	if len(text) > maxError {
		text = strings.ToValidUTF8(text[:maxError], "") + "…"
	}
	return text
}

// TLS are the files of a server's certificate. They are read again for each connection, so
// that they can be renewed.
type TLS struct {
	Certificate, Key string
	ClientCA         string // if set, clients need a certificate that it has issued
}

// Config returns the configuration of a server, nil without a certificate.
func (t TLS) Config() (*tls.Config, error) {
	switch {
	case t == TLS{}:
		return nil, nil
	case t.Certificate == "" || t.Key == "":
		return nil, errors.New("TLS needs --tls-cert and --tls-key")
	}
	if _, err := t.load(); err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return t.load() }}, nil
}

func (t TLS) load() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(t.Certificate, t.Key)
	if err != nil {
		return nil, fmt.Errorf("certificate %s: %w", t.Certificate, err)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}}
	if t.ClientCA == "" {
		return c, nil
	}
	text, err := os.ReadFile(t.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("certificates of clients: %w", err)
	}
	c.ClientCAs, c.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !c.ClientCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("certificates of clients: %s has no certificate", t.ClientCA)
	}
	return c, nil
}
