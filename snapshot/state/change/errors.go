package change

import (
	"encoding/json"
	"errors"

	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// classes are the errors that keep their identity on the way to another process, by name.
var classes = map[string]error{
	"no-devices":     state.ErrNoDevices,
	"request":        state.ErrRequest,
	"not-owner":      state.ErrNotOwner,
	"no-environment": state.ErrNoEnvironment,
	"active":         state.ErrActive,
	"cap":            state.ErrCap,
	"unavailable":    state.ErrUnavailable,
	"timeout":        nvidiasmi.ErrTimeout,
	"hung":           nvidiasmi.ErrHung,
}

// Limits of an error on the way to another process.
const (
	maxErrorText = 4096 // bytes
	maxConflicts = 256
)

type wireError struct {
	Text        string                  `json:"text"`
	Classes     map[string]bool         `json:"classes,omitempty"`
	Unavailable *state.UnavailableError `json:"unavailable,omitempty"`
}

func bounded(e *state.UnavailableError) *state.UnavailableError {
	return &state.UnavailableError{
		Reason: printable(e.Reason), TooFew: e.TooFew,
		Conflicts: e.Conflicts[:min(len(e.Conflicts), maxConflicts)],
	}
}

// EncodeError is an error as JSON for DecodeError, with a printable text of bounded length.
func EncodeError(err error) json.RawMessage {
	w := wireError{Text: printable(text.Late(err, 0).Error()), Classes: map[string]bool{}}
	for name, class := range classes {
		if errors.Is(err, class) {
			w.Classes[name] = true
		}
	}
	var unavailable *state.UnavailableError
	if errors.As(err, &unavailable) {
		w.Unavailable = bounded(unavailable)
	}
	data, err := json.Marshal(w)
	if err != nil { // none of its values can fail
		return json.RawMessage(`{"text":"an error that can't be encoded"}`)
	}
	return data
}

func printable(message string) string { return text.Cut(text.PrintableLines(message), maxErrorText) }

// DecodeError is what EncodeError wrote, or an error: its text, and for errors.Is and errors.As its classes.
func DecodeError(data []byte) error {
	var w wireError
	if err := json.Unmarshal(data, &w); err != nil || w.Text == "" {
		return errors.New("an error that can't be decoded")
	}
	var causes []error
	for name := range w.Classes {
		if class := classes[name]; class != nil {
			causes = append(causes, class)
		}
	}
	if w.Unavailable != nil {
		causes = append(causes, bounded(w.Unavailable))
	}
	return text.Worded(printable(w.Text), causes...)
}
