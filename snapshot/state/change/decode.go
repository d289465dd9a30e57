package change

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Limits of a change from another process.
const (
	MaxBytes   = 64 << 10 // of JSON
	maxIndices = 1024     // per list; no host has more devices
	maxReason  = 200      // bytes of an error of package json, which repeats the input
)

// Decode checks a change from another process. The error wraps state.ErrRequest.
func Decode(data []byte) (Change, error) {
	c, err := decode(data)
	if err != nil {
		return Change{}, state.Refuse("%w", err)
	}
	o, err := c.operation()
	if err == nil {
		err = o.check()
	}
	if err != nil {
		return Change{}, err
	}
	return c, nil
}

// UnmarshalJSON is Decode.
func (c *Change) UnmarshalJSON(data []byte) (err error) {
	*c, err = Decode(data)
	return err
}

func decode(data []byte) (c Change, err error) {
	type plain Change // without UnmarshalJSON
	switch {
	case len(data) > MaxBytes:
		return c, fmt.Errorf("it is longer than %d bytes", MaxBytes)
	case !utf8.Valid(data):
		return c, fmt.Errorf("it is not UTF-8")
	}
	reader := json.NewDecoder(bytes.NewReader(data))
	reader.DisallowUnknownFields()
	if err := reader.Decode((*plain)(&c)); err != nil {
		return c, fmt.Errorf("%s", text.Cut(text.OneLine(err.Error()), maxReason))
	}
	if _, err := reader.Token(); err != io.EOF {
		return c, fmt.Errorf("something follows it")
	}
	return c, nil
}

func (e *Enter) check() error {
	member := checkMember(e.PID, e.Kernel)
	if e.EID == "" && e.PID == 0 {
		member = state.Refuse("only the environment of a process has a default ID")
	}
	return cmp.Or(member, state.CheckName("the environment id", string(e.EID)), state.CheckConfig(e.Config),
		state.CheckMemory(e.Config.GPUMemory), checkAvailability(&e.Availability))
}

func (a *Attach) check() error {
	var count error
	if a.Count < 0 || a.Count > math.MaxInt32 {
		count = state.Refuse("%d GPUs", a.Count)
	}
	return cmp.Or(state.CheckEID(a.EID), count, checkIndices(a.Indices), checkAvailability(&a.Availability),
		state.CheckMemory(a.Memory), a.checkInstances())
}

func (a *Attach) checkInstances() error {
	if len(a.Instances) > maxIndices || len(a.Instances) > 0 && a.Unregistered {
		return state.Refuse("an attachment to %d MIG instances", len(a.Instances))
	}
	for _, wanted := range a.Instances {
		if err := snapshot.CheckInstance(wanted.UUID); err != nil {
			return state.Refuse("%w", err)
		}
		index := []snapshot.DeviceIndex{wanted.Index}
		if err := cmp.Or(checkIndices(index), state.CheckMemory(wanted.Memory)); err != nil {
			return err
		}
	}
	return nil
}

func (d *Detach) check() error { return cmp.Or(state.CheckEID(d.EID), checkIndices(d.Indices)) }

func (c *Configure) check() error {
	for _, setting := range c.Clear {
		if !slices.Contains([]string{Name, GPUMemory, GPUs}, setting) {
			return state.Refuse("there is no setting %s", text.Quoted(setting, maxReason))
		}
	}
	return cmp.Or(state.CheckEID(c.EID), state.CheckConfig(c.Set), state.CheckMemory(c.Set.GPUMemory))
}

func (l *Leave) check() error { return checkMember(l.PID, l.Kernel) }

func checkMember(pid snapshot.PID, kernel string) error {
	if pid < 0 || (pid == 0) == (kernel == "") {
		return state.Refuse("it is about one process or one Jupyter kernel")
	}
	return state.CheckName("the kernel id", kernel)
}

func checkAvailability(a *state.Availability) error {
	for _, s := range a.States {
		if !slices.Contains(gpus.States(), s) {
			return state.Refuse("a GPU can't be %s", text.Quoted(string(s), maxReason))
		}
	}
	return cmp.Or(checkIndices(slices.Collect(maps.Keys(a.States))), checkIndices(a.Last), checkIndices(a.Only))
}

func checkIndices(list []snapshot.DeviceIndex) error {
	if len(list) > maxIndices {
		return state.Refuse("%d GPUs are more than the maximum of %d", len(list), maxIndices)
	}
	for _, index := range list {
		if index < 0 || index > math.MaxInt32 {
			return state.Refuse("%d is not the index of a GPU", index)
		}
	}
	return nil
}

// classes are found by errors.Is in another process, too.
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

// Limits of an error for another process.
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

// EncodeError encodes an error, printable and bounded.
func EncodeError(err error) json.RawMessage {
	w := wireError{Text: printable(text.Late(err, 0).Error()), Classes: map[string]bool{}}
	for name, class := range classes {
		if errors.Is(err, class) {
			w.Classes[name] = true
		}
	}
	if unavailable, ok := errors.AsType[*state.UnavailableError](err); ok {
		w.Unavailable = bounded(unavailable)
	}
	data, err := json.Marshal(w)
	if err != nil { // can't happen
		return json.RawMessage(`{"text":"an error that can't be encoded"}`)
	}
	return data
}

func printable(message string) string { return text.Cut(text.PrintableLines(message), maxErrorText) }

// DecodeError restores an error's text and, for errors.Is and errors.As, its classes.
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
