package config

import (
	"context"
	"errors"
	"os"
	"slices"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/source/lag"
	"github.com/sluice-go/sluice/internal/config/strictyaml"
)

// MaxLag is the largest number of events in a file of lags.
const MaxLag = 1_000_000_000_000_000

// Lag is a consumer group whose lag another scaler asks for, such as KEDA.
type Lag struct {
	Name       string
	Target     int // events for which there is an instance; above 0
	Activation int // the most events for which there need be no instance at all; 0: none
	Source     *lag.Source
}

// Lags is the content of a file of lags. These are all keys of a lag, and there can be
// several in a file:
//
//	flights:                          # a name that you choose
//	  lag: {pipeline: flights.yaml}   # or source and checkpoints, as in an autoscaler's file
//	  target: 1000                    # events for which there is an instance
//	  activation: 0                   # the most events for which there need be no instance
type Lags struct {
	lags    []Lag
	openers []opener[autoscale.Source]
	places  []strictyaml.Place
}

// LoadLags reads a file of lags. For errors see [Parse].
func LoadLags(path string) (*Lags, error) {
	data, err := strictyaml.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return ParseLags(path, data, os.LookupEnv)
}

// ParseLags is LoadLags of a file with the given path and text. lookup finds environment variables.
func ParseLags(path string, data []byte, lookup func(string) (string, bool)) (*Lags, error) {
	l := &Lags{}
	err := strictyaml.Read(path, data, lookup, func(n strictyaml.Node) {
		n.Each(l.read)
		if n.IsMapping() && len(l.lags) == 0 {
			n.Fail("has no lag: write at least one")
		}
	})
	if err != nil {
		return nil, err
	}
	return l, nil
}

func (l *Lags) read(name string, n strictyaml.Node) {
	if !checkName(n, name) {
		return
	}
	one := Lag{Name: name}
	var open opener[autoscale.Source]
	n.Object(strictyaml.Keys{
		"lag":        func(n strictyaml.Node) { open = readLag(n) },
		"target":     func(n strictyaml.Node) { n.Int(&one.Target, 1, MaxLag) },
		"activation": func(n strictyaml.Node) { n.Int(&one.Activation, 0, MaxLag) },
	}, "lag", "target")
	l.lags, l.openers, l.places = append(l.lags, one), append(l.openers, open), append(l.places, n.Place())
}

// Open opens the lags, and returns a function that closes them. Errors have the place in
// the file.
func (l *Lags) Open(ctx context.Context) ([]Lag, func(context.Context) error, error) {
	p := &Parts{}
	lags := slices.Clone(l.lags)
	for i, open := range l.openers {
		source, done, err := open(ctx, &Options{})
		if err != nil {
			var placed *strictyaml.Problem
			if !errors.As(err, &placed) {
				err = &strictyaml.Problem{Place: l.places[i], Err: err}
			}
			return nil, nil, errors.Join(err, p.Close(ctx))
		}
		p.close = append(p.close, done)
		lags[i].Source = source.(*lag.Source)
	}
	return lags, p.Close, nil
}
