package flights

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"fmt"
)

//go:embed flights-20k.json.gz
var packed []byte

// LacksDelayEvery is the share of records that the demo sends without their
// delay, so that they can't be mapped: one in so many. It is a prime, so that
// they fall into all partitions.
const LacksDelayEvery = 997

// Records are the flight records. After the last one they repeat.
type Records struct {
	bodies []json.RawMessage
}

// UnpackRecords returns the records that are in the program.
func UnpackRecords() (*Records, error) {
	in, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("flight records: %w", err)
	}
	f := &Records{}
	if err := json.NewDecoder(in).Decode(&f.bodies); err != nil {
		return nil, fmt.Errorf("flight records: %w", err)
	}
	return f, nil
}

// Body returns the body of record number i, counted from 0.
func (all *Records) Body(i int64) ([]byte, error) {
	body := all.bodies[i%int64(len(all.bodies))]
	if !lacksDelay(i) {
		return body, nil
	}
	var f flight
	if err := json.Unmarshal(body, &f); err != nil {
		return nil, fmt.Errorf("flight record %d: %w", i, err)
	}
	f.Delay = nil
	return json.Marshal(f)
}

// lacksDelay reports whether record number i is sent without its delay.
func lacksDelay(i int64) bool { return i%LacksDelayEvery == LacksDelayEvery-1 }
