package strictyaml

import (
	"time"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// Setting is a value in an S: its key in a file, and how it is read and written there.
type Setting[S any] struct {
	Key  string
	Read func(*S, *Node)
	Text func(*S) string
	Copy func(to, from *S)
}

// NewSetting makes a setting with a value, which `false` switches off: then it is the zero T.
func NewSetting[S any, T comparable](key string, at func(*S) *T, example string, read func(*Node) T,
	write func(T) string,
) Setting[S] {
	var off T
	return Setting[S]{
		Key: key,
		Read: func(s *S, n *Node) {
			switch *at(s) = off; {
			case !n.IsBool():
				*at(s) = read(n)
			case !n.take(n.text == "false"):
				n.Failf("%s: true does not say how; write %s, or false for none", key, example)
			}
		},
		Text: func(s *S) string {
			if *at(s) == off {
				return "off"
			}
			return write(*at(s))
		},
		Copy: func(to, from *S) { *at(to) = *at(from) },
	}
}

// NewOptional makes a setting of which the zero T is a value, too: nil is off.
func NewOptional[S, T any](key string, at func(*S) **T, example string, read func(*Node) T,
	write func(T) string,
) Setting[S] {
	return NewSetting(key, at, example,
		func(n *Node) *T { value := read(n); return &value }, func(value *T) string { return write(*value) })
}

// NewDuration makes a setting that is a duration within bounds.
func NewDuration[S any](key string, at func(*S) *time.Duration, example string, low, high time.Duration) Setting[S] {
	return NewSetting(key, at, example, func(n *Node) time.Duration { return n.Duration(low, high) },
		text.FormatDuration)
}

// NewSwitch makes a setting that is on or off.
func NewSwitch[S any](key string, at func(*S) *bool) Setting[S] {
	s := NewSetting(key, at, "", nil, func(bool) string { return "on" })
	s.Read = func(s *S, n *Node) { *at(s) = n.Bool() }
	return s
}

// NewChoice makes a setting that is one of two words, of which the first switches something on.
func NewChoice[S any](key, on, off string, at func(*S) *bool) Setting[S] {
	s := NewSwitch(key, at)
	s.Read = func(s *S, n *Node) { *at(s) = n.OneOf(on, off) == on }
	s.Text = func(s *S) string {
		if *at(s) {
			return on
		}
		return off
	}
	return s
}
