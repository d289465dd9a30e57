package snapshot

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// reader notes what it leaves out of a document: one odd entry hides no others.
type reader struct {
	path   []listItem
	notes  []string
	more   int
	claims bool // some process's claim has a wrong type
}

type listItem struct {
	name, id string
	number   int
	known    bool // number is the item's own, not its place in the list
}

var errMissing = errors.New("it is missing or not understood")

func (r *reader) at(id EnvID, number int) {
	p := &r.path[len(r.path)-1]
	p.id, p.number, p.known = string(id), number, true
}

// leaveOut notes, unless err is nil, that a value of the current item, or the item (""), is missing.
func (r *reader) leaveOut(what string, err error) bool {
	if err == nil {
		return false
	}
	note := ""
	for _, p := range r.path {
		switch {
		case p.id != "":
			note += p.name + " " + text.Shown(p.id) + ": "
		case p.known:
			note += p.name + " " + strconv.Itoa(p.number) + ": "
		default:
			note += fmt.Sprintf("%s no. %d of the list: ", p.name, p.number+1)
		}
	}
	if what == "" {
		note = strings.TrimSuffix(note, ": ")
	}
	reason := strings.TrimPrefix(text.Cut(err.Error(), maxReason), ErrInvalid.Error()+": ")
	r.note(note + what + " can't be read and is left out: " + text.OneLine(reason))
	return true
}

func (r *reader) note(note string) {
	const maxNotes = 20
	if len(r.notes) == maxNotes {
		r.more++
		return
	}
	r.notes = append(r.notes, note)
}

func (r *reader) warnings() []string {
	if r.more > 0 {
		return append(r.notes, fmt.Sprintf("%d more values can't be read and are left out", r.more))
	}
	return r.notes
}

// Limits before decoding: an empty object has 3 bytes, and a decoded process 600.
const (
	maxValues  = 1 << 20
	maxObjects = 1 << 17
	maxReason  = 200 // bytes of an error of encoding/json, which repeats the input
)

// CheckAmount refuses more values or objects than a host can have, before decoding. Its error wraps ErrInvalid.
func CheckAmount(data []byte) error {
	if bytes.Count(data, []byte{','}) <= maxValues && bytes.Count(data, []byte{'{'}) <= maxObjects {
		return nil
	}
	switch values, objects := amountOf(data); {
	case values > maxValues:
		return tooMany(values, "values", maxValues)
	case objects > maxObjects:
		return tooMany(objects, "objects", maxObjects)
	}
	return nil
}

// amountOf counts objects, and commas outside strings, whose text users choose.
func amountOf(data []byte) (values, objects int) {
	inText := false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case c == '"':
			inText = !inText
		case inText && c == '\\':
			i++
		case inText:
		case c == ',':
			values++
		case c == '{':
			objects++
		}
	}
	return values, objects
}

func tooMany(n int, what string, limit int) error {
	return fmt.Errorf("%w: %d %s are more than the maximum of %d", ErrInvalid, n, what, limit)
}

var errTwice = errors.New("it is listed twice")

// kept omits invalid items and the second item of an id. More than limit items are an error.
func kept[Doc, Model any, ID comparable](
	r *reader, items []Doc, name string, limit int, read func(*Doc, *reader) (Model, error), id func(*Model) ID,
) ([]Model, error) {
	if len(items) > limit {
		return nil, tooMany(len(items), name+" entries", limit)
	}
	out := make([]Model, 0, len(items))
	seen := make(map[ID]bool, len(items))
	r.path = append(r.path, listItem{})
	defer func() { r.path = r.path[:len(r.path)-1] }()
	for i := range items {
		r.path[len(r.path)-1] = listItem{name: name, number: i}
		v, err := read(&items[i], r)
		if errors.Is(err, ErrInvalid) { // a list in it is too long
			return nil, err
		}
		if err == nil && seen[id(&v)] {
			err = errTwice
		}
		if r.leaveOut("", err) {
			continue
		}
		seen[id(&v)] = true
		out = append(out, v)
	}
	return out, nil
}

// unmarshal is json.Unmarshal with CheckAmount. It reads a value of a wrong type as null, not 0, which is root.
func (r *reader) unmarshal(data []byte, into any) error {
	if err := CheckAmount(data); err != nil {
		return err
	}
	err := json.Unmarshal(data, into)
	if err == nil || errors.As(err, new(*json.SyntaxError)) {
		return wrapped(err)
	}
	var document any
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err = d.Decode(&document); err == nil {
		data, err = json.Marshal(r.fit("", document, reflect.TypeOf(into).Elem()))
	}
	if err != nil {
		return wrapped(err)
	}
	reflect.ValueOf(into).Elem().SetZero()
	return unmarshal(data, into)
}

func unmarshal(data []byte, into any) error { return wrapped(json.Unmarshal(data, into)) }

func wrapped(err error) error {
	if err != nil {
		return fmt.Errorf("%w: %s", ErrInvalid, text.Cut(err.Error(), maxReason))
	}
	return nil
}

func (r *reader) fit(path string, v any, t reflect.Type) any {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	object, isObject := v.(map[string]any)
	list, isList := v.([]any)
	switch {
	case v == nil:
	case t.Kind() == reflect.Struct && isObject:
		for field := range t.Fields() {
			key, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if value, ok := object[key]; ok {
				object[key] = r.fit(path+"."+key, value, field.Type)
			} else if field.Anonymous {
				r.fit(path, v, field.Type)
			}
		}
	case t.Kind() == reflect.Map && isObject:
		for key, value := range object {
			object[key] = r.fit(path+"."+key, value, t.Elem())
		}
	case t.Kind() == reflect.Slice && isList:
		for i, value := range list {
			list[i] = r.fit(fmt.Sprintf("%s[%d]", path, i), value, t.Elem())
		}
	default:
		data, err := json.Marshal(v)
		if err == nil {
			err = json.Unmarshal(data, reflect.New(t).Interface())
		}
		if r.leaveOut(text.Cut(strings.TrimPrefix(path, "."), maxReason), err) {
			r.claims = r.claims || strings.HasSuffix(path, ".eid") && strings.HasPrefix(path, ".processes")
			return nil
		}
	}
	return v
}

func clean[T ~string](r *reader, name string, s *T) {
	if r.leaveOut(name, CheckName("it", string(*s))) {
		*s = ""
	}
}

func cleanText[T ~string](r *reader, name string, s *T) {
	if r.leaveOut(name, CheckText("it", string(*s))) {
		*s = ""
	}
}

func checkID(id string) error {
	if id == "" {
		return errors.New("it is empty")
	}
	return CheckName("it", id)
}

func (r *reader) id(id EnvID) EnvID {
	safe := Claim(string(id))
	if safe != id {
		r.note(fmt.Sprintf("an environment has an id that can't be read: it is called %s here", safe))
	}
	return safe
}

// orZero reads JSON's null as the zero value, which means unknown or none.
func orZero[T any](v *T) T { return *cmp.Or(v, new(T)) }

func orNull[T ~string](s T) *T {
	if s == "" {
		return nil
	}
	return &s
}

func orEmpty[T any](items []T) []T { return append([]T{}, items...) }

func checkPID(pid PID) error {
	if pid < 1 {
		return fmt.Errorf("%d is not a PID", pid)
	}
	return nil
}

func checkIndex(index *DeviceIndex) error {
	if index == nil {
		return errors.New("its index is missing")
	}
	if i := *index; i < 0 || i >= maxDevices {
		return fmt.Errorf("the GPU index %d is not from 0 to %d", i, maxDevices-1)
	}
	return nil
}

// measured returns nil for a value that no device can have.
func measured[T any](r *reader, name string, value *T, check func(T) error) *T {
	if value == nil || r.leaveOut(name, check(*value)) {
		return nil
	}
	return value
}

func checkUtilization(percent int) error {
	return within(percent, 0, 100, "a utilization of %d per cent")
}

// CheckTemperature refuses degrees Celsius that no device can have. The error wraps ErrInvalid.
func CheckTemperature(celsius int) error {
	return within(celsius, -273, 1000, "a temperature of %d degrees Celsius")
}

// CheckPower refuses watts that no device can draw. The error wraps ErrInvalid.
func CheckPower(watts float64) error { return within(watts, 0, 1e6, "a power of %g watts") }

func within[T int | float64](value, least, most T, format string) error {
	if value >= least && value <= most { // NaN isn't
		return nil
	}
	return fmt.Errorf("%w: "+format, ErrInvalid, value)
}
