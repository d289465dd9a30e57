package top

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Filter chooses rows by conditions on their fields, such as
//
//	host~gpu-1 user=bob util<5 state=finding
//
// The zero Filter takes all rows.
type Filter struct {
	text  string
	terms []condition
}

// condition is one condition. A term without a field looks for its value in all texts of a row.
type condition struct {
	field    *field
	operator string // = != ~ !~ < <= > >=
	value    string // in lower case
	number   float64
}

// String is the filter as it was written.
func (f Filter) String() string { return f.text }

// maxFilterLength bounds the length of a filter in bytes.
const maxFilterLength = 1000

// ParseFilter reads a filter: conditions that must all be met, with spaces between them. A condition is a field, an
// operator and a value, as in host~gpu-1 user=bob util<5 mem>=40g state=finding, or a word alone. Values with spaces
// are put in quotation marks. The operators are = and !=, ~ (contains) and !~, and < <= > >= for numbers.
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

func splitWords(s string) (words []string, err error) {
	quoted := false
	words = strings.FieldsFunc(s, func(r rune) bool {
		quoted = quoted != (r == '"')
		return unicode.IsSpace(r) && !quoted
	})
	if quoted {
		return nil, errors.New(`a closing " is missing`)
	}
	for i := range words {
		words[i] = strings.ReplaceAll(words[i], `"`, "")
	}
	return words, nil
}

func parseTerm(word string) (condition, error) {
	at := strings.IndexAny(word, "=!~<>")
	if at < 0 {
		return condition{operator: "~", value: strings.ToLower(word)}, nil
	}
	name, rest := strings.ToLower(word[:at]), word[at:]
	var t condition
	for _, operator := range []string{"!=", "!~", "<=", ">=", "=", "~", "<", ">"} { // the longer ones first
		if value, found := strings.CutPrefix(rest, operator); found {
			t.operator, t.value = operator, strings.ToLower(value)
			break
		}
	}
	i := slices.IndexFunc(fields(), func(f field) bool { return f.name == name })
	switch {
	case t.operator == "":
		return t, fmt.Errorf("%s: write != or !~ after the field", text.Shown(word))
	case i < 0:
		return t, fmt.Errorf("unknown field %s (%s)", text.Shown(name),
			text.Hint(name, fieldNames(), "the fields are "+strings.Join(fieldNames(), " ")))
	case t.value == "":
		return t, fmt.Errorf("%s%s: a value is missing", name, t.operator)
	}
	t.field = &fields()[i]
	return t.check()
}

func (t condition) check() (condition, error) {
	name, number := t.field.name, t.field.number
	switch {
	case number == nil && strings.ContainsAny(t.operator, "<>"):
		return t, fmt.Errorf("%s is a text: compare it with =, !=, ~ or !~", name)
	case number == nil:
		return t, nil
	case strings.Contains(t.operator, "~"):
		return t, fmt.Errorf("%s is a number: compare it with =, !=, <, <=, > or >=", name)
	}
	var err error
	if t.number, err = number(t.value); err != nil {
		return t, fmt.Errorf("%s: %w", name, err)
	}
	return t, nil
}

// matches reports whether a row meets all conditions. Those on fields that such rows don't have are ignored.
func (f Filter) matches(r *tabRow) bool {
	for i := range f.terms {
		t := &f.terms[i]
		switch {
		case t.field == nil && !t.matches(allTexts(r)):
			return false
		case t.field != nil && slices.Contains(t.field.tabs, r.id.tab) && !t.matches(t.field.values(r)):
			return false
		}
	}
	return true
}

// matches reports whether one of the values meets the condition; for != and !~, whether
// all do. What is unknown meets no condition on a number.
func (t *condition) matches(list []gpus.Value) bool {
	switch t.operator {
	case "!=", "!~":
		return !slices.ContainsFunc(list, func(v gpus.Value) bool { return t.equals(v) })
	}
	return slices.ContainsFunc(list, t.meets)
}

// equals ignores that the operator may be negative.
func (t *condition) equals(v gpus.Value) bool {
	switch {
	case v.IsNumber:
		return v.Number == t.number
	case strings.HasSuffix(t.operator, "~"):
		return strings.Contains(strings.ToLower(v.Text), t.value)
	}
	return strings.EqualFold(v.Text, t.value)
}

func (t *condition) meets(v gpus.Value) bool {
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
