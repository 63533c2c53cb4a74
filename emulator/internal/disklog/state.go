package disklog

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
)

const (
	stateFile       = "state"
	temporarySuffix = ".next" // suffix of a file that is going to replace another
)

// state is the content of the file "state".
type state struct {
	First int64 `json:"first"` // sequence number of the oldest event that Trim has left
	Next  int64 `json:"next"`  // all events below were durable
}

func loadState(store storage) (state, error) {
	var s state
	text, err := store.read(stateFile)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(text, &s); err != nil || s.First < 0 || s.Next < s.First {
		return s, &CorruptError{File: filePath(store.path(), stateFile), Why: "not a valid state file"}
	}
	return s, nil
}

// saveState writes the state, with first as the oldest event, if it has changed. The
// caller holds writeLock.
func (l *Log) saveState(first int64) error {
	s := state{First: first, Next: l.next}
	if s == l.savedState {
		return nil
	}
	text, err := json.Marshal(s)
	if err == nil {
		err = l.store.replace(stateFile, append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("save state: %w", err)
	}
	l.savedState = s
	return nil
}
