package keyedtest

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// values: they are stored as an INSERT stores them, new or as updates.
func values(t testing.TB, h Harness) {
	w := h.Words
	h.table(t, "various", "id "+w.Int+" NOT NULL PRIMARY KEY", "body "+w.Text, "raw "+w.Bytes, "at "+w.Time, "amount "+w.Decimal, "big "+w.Int)
	texts := []string{"", "it's", `back\slash \N \t`, "tab\tline\nreturn\r", `"quoted" {a,b}`, "naïve 日本語 🙂", "NULL", "%s ? $1 @p1 :x", strings.Repeat("x", 5000)}
	at := time.Date(2026, 7, 1, 1, 2, 3, 4005000, time.UTC)
	k := driver.Keyed{Key: []string{"id"}}
	for _, n := range []int{len(texts), 150} {
		for _, big := range []int64{9223372036854775807, -9223372036854775808} {
			rows := make([][]any, n)
			for i := range rows {
				text := texts[i%len(texts)]
				rows[i] = []any{i, text, []byte(text + "\x00\xff"), at, "2.5", big}
			}
			rows[n-1] = []any{n - 1, nil, nil, nil, nil, nil}
			suite.NoError(t, fmt.Sprint(n, " rows"), h.upsert(t, "various", "id body raw at amount big", rows, k))
			h.sameValues(t, rows)
		}
	}
	h.expect(t, "times", "SELECT COUNT(*) FROM various WHERE "+fmt.Sprintf(w.TimeEquals, "at"), "149")
}

// sameValues compares what is stored with rows, as far as every driver returns the same.
func (h Harness) sameValues(t testing.TB, rows [][]any) {
	t.Helper()
	found, err := h.DB.QueryContext(suite.Context(t), "SELECT id, body, raw, big FROM various ORDER BY id")
	suite.NoError(t, "read", err)
	defer found.Close()
	n := 0
	for ; found.Next(); n++ {
		var id int
		var body *string
		var raw []byte
		var big *int64
		suite.NoError(t, "scan", found.Scan(&id, &body, &raw, &big))
		row := rows[n]
		switch {
		case row[1] == nil:
			if body != nil || raw != nil || big != nil {
				t.Errorf("row %d is %v %v %v, want NULLs", id, body, raw, big)
			}
		case body == nil || *body != row[1] || !bytes.Equal(raw, row[2].([]byte)) || big == nil || *big != row[5]:
			t.Errorf("row %d has %v %q %v, want %q %q %v", id, body, raw, big, row[1], row[2], row[5])
		}
	}
	if suite.NoError(t, "rows", found.Err()); n != len(rows) {
		t.Errorf("%d rows, want %d", n, len(rows))
	}
}

// sizes: 1 row, and 3000 of which many have a key twice and some are deletes.
func sizes(t testing.TB, h Harness) {
	h.table(t, "many", "id "+h.Words.Int+" NOT NULL PRIMARY KEY", "v "+h.Words.Int, "body "+h.Words.Text)
	body := strings.Repeat("y", 500)
	for _, on := range []driver.OnConflict{driver.Update, driver.Skip, driver.Newer} {
		h.exec(t, "DELETE FROM many")
		k := driver.Keyed{Key: []string{"id"}, OnConflict: on, Delete: func(row int) bool { return row%10 == 9 }}
		if on == driver.Newer {
			k.Version = "v"
		}
		suite.NoError(t, "one row", h.upsert(t, "many", "id v body", [][]any{{0, 0, body}}, k))
		rows := make([][]any, 3000)
		for i := range rows {
			rows[i] = []any{i % 2000, i, body} // 1009, 1019 … are deleted and not written again
		}
		suite.NoError(t, "3000 rows", h.upsert(t, "many", "id v body", rows, k))
		h.expect(t, on.String(), "SELECT COUNT(*), MIN(id), MAX(id) FROM many", "1800|0|1998")
		sum := 0
		for id := range 2000 {
			switch {
			case id%10 == 9:
			case on == driver.Skip || id >= 1000:
				sum += id
			default:
				sum += id + 2000
			}
		}
		h.expect(t, on.String(), "SELECT SUM(v) FROM many", fmt.Sprint(sum))
	}
}
