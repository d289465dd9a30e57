package snapshot

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"
)

// How JSON is read and written, whatever it is of.

// decodeEach decodes the items of a list and refuses two with the same id.
func decodeEach[From, To any, ID comparable](items []From, what string, decode func(From) (To, error), id func(To) ID) ([]To, error) {
	out := make([]To, 0, len(items))
	seen := make(map[ID]bool, len(items))
	for i, item := range items {
		v, err := decode(item)
		if err != nil {
			return nil, fmt.Errorf("%s %d: %w", what, i, err)
		}
		if seen[id(v)] {
			return nil, fmt.Errorf("%w: %s %v is listed twice", ErrInvalid, what, id(v))
		}
		seen[id(v)] = true
		out = append(out, v)
	}
	return out, nil
}

// object splits a JSON object that must have exactly the given keys.
func object(data []byte, keys ...string) ([]json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	values := make([]json.RawMessage, len(keys))
	for i, key := range keys {
		value, ok := fields[key]
		if !ok {
			return nil, fmt.Errorf("%w: the key %q is missing", ErrInvalid, key)
		}
		values[i] = value
		delete(fields, key)
	}
	if len(fields) > 0 {
		return nil, fmt.Errorf("%w: %w: %.100q", ErrInvalid, ErrOtherVersion, slices.Min(slices.Collect(maps.Keys(fields))))
	}
	return values, nil
}

// list splits {"key": […]} into its items, at most limit of them.
func list(data []byte, key string, limit int) ([]json.RawMessage, error) {
	if err := checkAmount(data); err != nil {
		return nil, err
	}
	fields, err := object(data, key)
	if err != nil {
		return nil, err
	}
	return array(fields[0], key, limit)
}

func array(data []byte, name string, limit int) ([]json.RawMessage, error) {
	var items []json.RawMessage
	if err := json.Unmarshal(data, &items); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrInvalid, name, err)
	}
	if items == nil {
		return nil, fmt.Errorf("%w: %s is null", ErrInvalid, name)
	}
	if len(items) > limit {
		return nil, fmt.Errorf("%w: %d %s are more than the %d that are read", ErrInvalid, len(items), name, limit)
	}
	return items, nil
}

func integer(data []byte, name string, low, high int64) (int64, error) {
	var n *int64
	if err := json.Unmarshal(data, &n); err != nil {
		return 0, fmt.Errorf("%w: %s is no whole number of at most 64 bits", ErrInvalid, name) // err repeats all its digits
	}
	if n == nil || *n < low || *n > high {
		return 0, fmt.Errorf("%w: %s %s is not between %d and %d", ErrInvalid, name, data, low, high)
	}
	return *n, nil
}

// textOrNull reads a text, or "" for null.
func textOrNull[T ~string](data []byte, name string) (T, error) {
	var s *string
	if err := json.Unmarshal(data, &s); err != nil {
		return "", fmt.Errorf("%w: %s: %w", ErrInvalid, name, err)
	}
	if s == nil {
		return "", nil
	}
	return T(*s), CheckText(name, *s)
}

// nonEmpty reads a text that must not be empty.
func nonEmpty[T ~string](data []byte, name string) (T, error) {
	s, err := textOrNull[T](data, name)
	if err == nil && s == "" {
		err = fmt.Errorf("%w: %s is empty", ErrInvalid, name)
	}
	return s, err
}

func memoryOrNull(data []byte) (Memory, error) {
	s, err := textOrNull[string](data, "gpu_memory")
	if err != nil || s == "" {
		return Memory{}, err
	}
	m, err := ParseMemory(s)
	if err != nil {
		return Memory{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return m, nil
}

func date(data []byte, name string) (Date, error) {
	s, err := nonEmpty[string](data, name)
	if err != nil {
		return Date{}, err
	}
	d, err := ParseDate(s)
	if err != nil {
		return Date{}, fmt.Errorf("%w: %s: %w", ErrInvalid, name, err)
	}
	return d, nil
}

func each[T any](data []byte, name string, limit int, decode func([]byte) (T, error)) ([]T, error) {
	items, err := array(data, name, limit)
	if err != nil {
		return nil, err
	}
	out := make([]T, 0, len(items))
	for _, raw := range items {
		v, err := decode(raw)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// encode writes JSON as Python's json.dumps(indent=2) does: HTML stays as it
// is, everything outside printable ASCII is escaped.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encode state: %w", err)
	}
	return escapeNonASCII(bytes.TrimSuffix(b.Bytes(), []byte("\n"))), nil
}

// escapeNonASCII works on whole JSON, since only strings can hold such runes.
func escapeNonASCII(data []byte) []byte {
	out := make([]byte, 0, len(data))
	for len(data) > 0 {
		r, size := utf8.DecodeRune(data)
		switch {
		case r < 0x7f:
			out = append(out, data[0])
		case r < 0x10000:
			out = appendEscape(out, r)
		default: // a surrogate pair
			out = appendEscape(out, 0xd800+(r-0x10000)>>10)
			out = appendEscape(out, 0xdc00+(r-0x10000)&0x3ff)
		}
		data = data[size:]
	}
	return out
}

func appendEscape(out []byte, r rune) []byte {
	const hex = "0123456789abcdef"
	return append(out, '\\', 'u', hex[r>>12], hex[r>>8&0xf], hex[r>>4&0xf], hex[r&0xf])
}
