package top

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// Filter chooses rows by conditions on their fields, such as
//
//	host~gpu-1 user=bob util<5 state=finding
//
// It knows the names and kinds of fields; what a row has in them, its caller says. The zero Filter
// takes all rows.
type Filter struct {
	text  string
	terms []term
}

// filterValue is what a row has in a field: a text or a number.
type filterValue struct {
	Text     string
	Number   float64
	IsNumber bool
}

// term is one condition. A term without a field looks for its value in all texts of a row.
type term struct {
	field    string
	operator string // = != ~ !~ < <= > >=
	value    string // in lower case
	number   float64
}

// String is the filter as it was written.
func (f Filter) String() string { return f.text }

// maxFilterLength bounds the length of a filter in bytes.
const maxFilterLength = 1000

// ParseFilter reads a filter: conditions that must all be met, with spaces between them.
// A condition is a field, an operator and a value, as in host~gpu-1 user=bob util<5
// mem>=40g state=finding, or a word alone. Values with spaces are put in quotation marks.
// The operators are = and !=, ~ (contains) and !~, and < <= > >= for numbers.
func ParseFilter(s string) (Filter, error) {
	if len(s) > maxFilterLength {
		return Filter{}, fmt.Errorf("the filter is longer than %d characters", maxFilterLength)
	}
	f := Filter{text: strings.TrimSpace(s)}
	words, err := splitWords(s)
	if err != nil {
		return Filter{}, err
	}
	for _, word := range words {
		t, err := parseTerm(word)
		if err != nil {
			return Filter{}, err
		}
		f.terms = append(f.terms, t)
	}
	return f, nil
}

// splitWords splits at spaces outside of quotation marks.
func splitWords(s string) (words []string, err error) {
	var word strings.Builder
	quoted, begun := false, false
	for _, r := range s {
		switch {
		case r == '"':
			quoted, begun = !quoted, true
		case unicode.IsSpace(r) && !quoted:
			if begun {
				words = append(words, word.String())
			}
			word.Reset()
			begun = false
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	if quoted {
		return nil, errors.New(`a closing " is missing`)
	}
	if begun {
		words = append(words, word.String())
	}
	return words, nil
}

func parseTerm(word string) (term, error) {
	at := strings.IndexAny(word, "=!~<>")
	if at < 0 {
		return term{operator: "~", value: strings.ToLower(word)}, nil
	}
	t := term{field: strings.ToLower(word[:at])}
	rest := word[at:]
	for _, operator := range []string{"!=", "!~", "<=", ">=", "=", "~", "<", ">"} { // the longer ones first
		if value, found := strings.CutPrefix(rest, operator); found {
			t.operator, t.value = operator, strings.ToLower(value)
			break
		}
	}
	kind, known := fields()[t.field]
	switch {
	case t.operator == "":
		return t, fmt.Errorf("%s: write != or !~ after the field", text.Shown(word))
	case !known:
		return t, fmt.Errorf("unknown field %s (%s)", text.Shown(t.field), text.Hint(t.field, fieldNames(), "the fields are "+strings.Join(fieldNames(), " ")))
	case t.value == "":
		return t, fmt.Errorf("%s%s: a value is missing", t.field, t.operator)
	}
	return t.check(kind)
}

// check reads the number of a term.
func (t term) check(kind fieldKind) (term, error) {
	compares := strings.ContainsAny(t.operator, "<>")
	switch {
	case kind == textField && compares:
		return t, fmt.Errorf("%s is a text: compare it with =, !=, ~ or !~", t.field)
	case kind != textField && strings.Contains(t.operator, "~"):
		return t, fmt.Errorf("%s is a number: compare it with =, !=, <, <=, > or >=", t.field)
	}
	var err error
	switch kind {
	case textField:
	case numberField:
		t.number, err = strconv.ParseFloat(strings.TrimSuffix(t.value, "%"), 64)
		if err != nil || math.IsNaN(t.number) {
			return t, fmt.Errorf("%s: %s is not a number", t.field, text.Shown(t.value))
		}
	case memoryField:
		bytes, err := text.ParseMemory(t.value)
		if err != nil {
			return t, fmt.Errorf("%s: %w", t.field, err)
		}
		t.number = float64(bytes)
	}
	return t, nil
}

// fieldKind says how the values of a field are compared.
type fieldKind int

const (
	textField fieldKind = iota
	numberField
	memoryField
)

// fields are what a filter can ask for.
func fields() map[string]fieldKind {
	return map[string]fieldKind{
		"host": textField, "model": textField, "user": textField, "state": textField, "rule": textField,
		"command": textField, "container": textField, "class": textField, "label": textField, "event": textField,
		"guard": textField,
		"gpu":   numberField, "pid": numberField, "util": numberField, "free": numberField, "devices": numberField,
		"idle": numberField, "mem": memoryField,
	}
}

// isTextField reports whether a field has texts, and not numbers.
func isTextField(field string) bool {
	kind, known := fields()[field]
	return known && kind == textField
}

func fieldNames() (names []string) {
	for name := range fields() {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Fields are those that the filter has conditions on, each once for a condition; "" is for
// a word alone.
func (f Filter) Fields() (names []string) {
	for i := range f.terms {
		names = append(names, f.terms[i].field)
	}
	return names
}

// Matches reports whether a row meets all conditions. values is what it has in a field, or
// with "" all its texts; false for a field that such rows don't have: conditions on it are
// ignored.
func (f Filter) Matches(values func(field string) ([]filterValue, bool)) bool {
	for i := range f.terms {
		t := &f.terms[i]
		if list, has := values(t.field); has && !t.matches(list) {
			return false
		}
	}
	return true
}

// matches reports whether one of the values meets the condition; for != and !~, whether
// all do. What is unknown meets no condition on a number.
func (t *term) matches(list []filterValue) bool {
	switch t.operator {
	case "!=", "!~":
		return !slices.ContainsFunc(list, func(v filterValue) bool { return t.equals(v) })
	}
	return slices.ContainsFunc(list, t.meets)
}

// equals ignores that the operator may be negative.
func (t *term) equals(v filterValue) bool {
	switch {
	case v.IsNumber:
		return v.Number == t.number
	case strings.HasSuffix(t.operator, "~"):
		return strings.Contains(strings.ToLower(v.Text), t.value)
	}
	return strings.EqualFold(v.Text, t.value)
}

func (t *term) meets(v filterValue) bool {
	switch t.operator {
	case "<":
		return v.IsNumber && v.Number < t.number
	case "<=":
		return v.IsNumber && v.Number <= t.number
	case ">":
		return v.IsNumber && v.Number > t.number
	case ">=":
		return v.IsNumber && v.Number >= t.number
	}
	return t.equals(v)
}
