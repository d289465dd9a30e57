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

// Filter chooses rows. The zero Filter takes all of them.
type Filter struct {
	text  string
	terms []term
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

// maxFilter bounds the length of a filter in bytes.
const maxFilter = 1000

// ParseFilter reads a filter: conditions that must all be met, with spaces between them.
// A condition is a field, an operator and a value, as in host~gpu-1 user=bob util<5
// mem>=40g state=finding, or a word alone. Values with spaces are put in quotation marks.
// The operators are = and !=, ~ (contains) and !~, and < <= > >= for numbers.
func ParseFilter(s string) (Filter, error) {
	if len(s) > maxFilter {
		return Filter{}, fmt.Errorf("the filter is longer than %d characters", maxFilter)
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
		"gpu": numberField, "pid": numberField, "util": numberField, "free": numberField, "devices": numberField,
		"idle": numberField, "mem": memoryField,
	}
}

func fieldNames() (names []string) {
	for name := range fields() {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// keep returns the rows that meet all conditions.
func (f Filter) keep(s *scene, rows []row) []row {
	if len(f.terms) == 0 {
		return rows
	}
	return slices.DeleteFunc(rows, func(r row) bool { return !f.matches(s, &r) })
}

func (f Filter) matches(s *scene, r *row) bool {
	for i := range f.terms {
		t := &f.terms[i]
		if hasField(r.id.tab, t.field) && !t.matches(s.values(r, t.field)) {
			return false
		}
	}
	return true
}

func hasField(tab tabID, name string) bool { return name == "" || slices.Contains(fieldsOf(tab), name) }

// ignored are the fields that the rows of a tab don't have.
func (f Filter) ignored(tab tabID) (names []string) {
	for i := range f.terms {
		if name := f.terms[i].field; !hasField(tab, name) {
			names = append(names, name)
		}
	}
	return names
}

// matches reports whether one of the values meets the condition; for != and !~, whether
// all do. What is unknown meets no condition on a number.
func (t *term) matches(list []value) bool {
	switch t.operator {
	case "!=", "!~":
		return !slices.ContainsFunc(list, func(v value) bool { return t.equals(v) })
	}
	return slices.ContainsFunc(list, t.meets)
}

// equals ignores that the operator may be negative.
func (t *term) equals(v value) bool {
	switch {
	case v.isNumber:
		return v.number == t.number
	case strings.HasSuffix(t.operator, "~"):
		return strings.Contains(strings.ToLower(v.text), t.value)
	}
	return strings.EqualFold(v.text, t.value)
}

func (t *term) meets(v value) bool {
	switch t.operator {
	case "<":
		return v.isNumber && v.number < t.number
	case "<=":
		return v.isNumber && v.number <= t.number
	case ">":
		return v.isNumber && v.number > t.number
	case ">=":
		return v.isNumber && v.number >= t.number
	}
	return t.equals(v)
}
