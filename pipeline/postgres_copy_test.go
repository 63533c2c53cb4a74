package pipeline

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// pgx encodes what a copyCells holds as it encodes the plain value, whatever the type of the column, and
// its errors show the value.
func TestCopyCellsAreEncodedAsTheirValues(t *testing.T) {
	const unregistered = 123_456 // as of an enum
	oids := []uint32{
		pgtype.TextOID, pgtype.VarcharOID, pgtype.BPCharOID, pgtype.UUIDOID, pgtype.JSONOID, pgtype.JSONBOID, pgtype.BoolOID, pgtype.ByteaOID,
		pgtype.Int2OID, pgtype.Int4OID, pgtype.Int8OID, pgtype.NumericOID, pgtype.Float4OID, pgtype.Float8OID,
		pgtype.TimestamptzOID, pgtype.TimestampOID, pgtype.DateOID, pgtype.TimeOID, pgtype.InetOID, unregistered,
	}
	at := time.Date(2026, 7, 8, 23, 4, 5, 678_901_000, time.UTC)
	values := []cell{
		ownText(""), ownText("a text"), ownText("12"), ownText("true"), ownText("6ba7b810-9dad-11d1-80b4-00c04fd430c8"), sharedText([]byte(`{"a": 1}`)),
		{kind: cellInteger}, {kind: cellInteger, integer: -1 << 15}, {kind: cellInteger, integer: 1<<31 - 1}, {kind: cellInteger, integer: 1 << 40},
		{kind: cellTime, time: at}, {kind: cellTime, time: time.Unix(0, 0).UTC()}, {}, {other: true}, {other: []byte("x")}, {other: 1.5},
	}
	// A map keeps the plan of each type that it has met, so each way has one of its own.
	plain, copied := pgtype.NewMap(), pgtype.NewMap()
	pointers, encoded, refused := 0, 0, 0
	for _, v := range values {
		for _, oid := range oids {
			cells := copyCells{{takes: takenBy(copied, oid)}}
			boxed := cells.box(0, v)
			if k := reflect.ValueOf(boxed); k.Kind() == reflect.Pointer {
				pointers++
			}
			want, wantErr := plain.Encode(oid, pgtype.BinaryFormatCode, v.value(), nil)
			got, err := copied.Encode(oid, pgtype.BinaryFormatCode, boxed, nil)
			switch {
			case wantErr != nil && err != nil:
				refused++
				if got, want := err.Error(), wantErr.Error(); got != want {
					t.Errorf("%#v into type %d: %s, for a plain value %s", v.value(), oid, got, want)
				}
			case wantErr != nil || err != nil || !bytes.Equal(got, want):
				t.Errorf("%#v into type %d: % x, %v, for a plain value % x, %v", v.value(), oid, got, err, want, wantErr)
			default:
				encoded++
			}
		}
	}
	if pointers < 30 || encoded < 100 || refused < 50 {
		t.Errorf("%d pointers, %d values encoded, %d refused", pointers, encoded, refused)
	}
}
