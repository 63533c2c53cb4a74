package telemetry

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// maxReference limits the size of a reference file, in bytes.
const maxReference = 1 << 20

// ReadReference reads the counts of days from CSV with two columns, day and count. A header is
// allowed. Days begin in zone.
func ReadReference(r io.Reader, zone *time.Location) (map[time.Time]float64, error) {
	counts := map[time.Time]float64{}
	in := csv.NewReader(io.LimitReader(r, maxReference))
	in.FieldsPerRecord = 2
	for row := 1; ; row++ {
		record, err := in.Read()
		if err == io.EOF {
			return counts, nil
		}
		if err != nil {
			return nil, fmt.Errorf("row %d: %w", row, err)
		}
		day, err := time.ParseInLocation(time.DateOnly, record[0], zone)
		count, numberErr := strconv.ParseFloat(strings.TrimSpace(record[1]), 64)
		switch {
		case row == 1 && err != nil && numberErr != nil: // a header
		case err != nil:
			return nil, fmt.Errorf("row %d: %q: write a day such as 2026-01-31", row, record[0])
		case numberErr != nil || !(count >= 0 && count < 1e15):
			return nil, fmt.Errorf("row %d: %q is not a count", row, record[1])
		default:
			counts[day] += count
		}
	}
}
