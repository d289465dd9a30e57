// Package text parses and formats small texts, each kind in one place: durations, amounts of memory, lists of device
// indices, host patterns, and hints for misspelt words. It makes foreign text safe for a terminal.
//
// It imports no other package of genv, so that all may use it.
package text

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/xrash/smetrics"
)

const maxShown = 32 // characters

// Shown makes an id, a name or a command safe for people. Users choose these texts: one that isn't an ordinary word is
// quoted, shortened to 32 characters, and made printable without quotation marks, so that it can't look like a part of
// genv's own message. A word of at most 32 letters, digits and the marks ._:@/+- is unchanged, as in 1.4.3.
func Shown(text string) string {
	if ordinary(text) {
		return text
	}
	return Quoted(text, maxShown)
}

// Quoted quotes a foreign text as Shown does, but shortens it to most characters.
func Quoted(text string, most int) string {
	return `"` + Shorten(strings.Map(harmless, text), most) + `"`
}

// ShownCommand omits the program's folder, and quotes as Shown does unless all words are ordinary.
func ShownCommand(text string) string {
	program, _, _ := strings.Cut(text, " ")
	text = strings.TrimPrefix(text, program[:strings.LastIndexByte(program, '/')+1])
	words := strings.Fields(text)
	if len(text) <= maxShown && strings.Join(words, " ") == text &&
		!slices.ContainsFunc(words, func(word string) bool { return !ordinary(word) }) {
		return text
	}
	return Shown(text)
}

// ordinary excludes "N/A", which is shown for no environment.
func ordinary(text string) bool {
	return text != "" && len(text) <= maxShown && text != "N/A" && IsMadeOf(text, "._:@/+-")
}

// IsMadeOf says whether a text contains only ASCII letters, digits and the given marks.
func IsMadeOf(text, marks string) bool {
	return !strings.ContainsFunc(text,
		func(r rune) bool { return !isAlphanumeric(r) && !strings.ContainsRune(marks, r) })
}

func isAlphanumeric(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
}

// harmless replaces quotation marks by an apostrophe, and characters that are invisible, reorder text or overlap others
// by a question mark.
func harmless(r rune) rune {
	switch {
	case r == utf8.RuneError, !unicode.IsPrint(r), unicode.Is(unicode.M, r):
		// RuneError also for a byte that is not UTF-8
		return '?'
	case r == '"', r == '＂', r == '″', r == '‶', r == 'ʺ', r == '˝', r == '״', unicode.In(r, unicode.Quotation_Mark):
		return '\''
	}
	return r
}

// CheckUsername returns an error unless a name can be an account's. NSS may give any name that fits into a field of
// passwd(5), such as ann@corp.example, CORP\jdoe or First Last. A comma separates names, and a dash at the beginning
// would be an option of ssh.
func CheckUsername(name string) error {
	const maxUsername = 256 // bytes
	switch {
	case name == "":
		return errors.New("the user name is empty")
	case len(name) > maxUsername || !utf8.ValidString(name) || strings.TrimSpace(name) != name,
		strings.ContainsAny(name, ":,") || strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("%s is not a user name; write one name", Quoted(name, 80))
	case name[0] == '-':
		return fmt.Errorf("the user name %s begins with a dash; write only the name", Quoted(name, 80))
	}
	return nil
}

// Hint suggests the nearest known word, as in: did you mean "enforce"? If none is near, it is otherwise.
func Hint(word string, known []string, otherwise string) string {
	if near := Nearest(word, known); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return otherwise
}

// Nearest returns the known word nearest to a misspelt one, or "": of equals the one with the longest common prefix,
// then the first. A host without its domain means the full name.
func Nearest(word string, known []string) string {
	limit := 1
	if len(word) > 3 {
		limit = max(2, len(word)/3) // 2 is two letters swapped
	}
	best, found := limit+1, ""
	for _, k := range known {
		if short, _, long := strings.Cut(k, "."); long && word != "" && strings.EqualFold(short, word) {
			return k // the full name of a host
		}
		if len(k)-len(word) > best || len(word)-len(k) > best {
			continue // the distance is at least the difference in length
		}
		d := smetrics.WagnerFischer(strings.ToLower(word), strings.ToLower(k), 1, 1, 1)
		if d < best || d == best && d <= limit && commonPrefix(word, k) > commonPrefix(word, found) {
			best, found = d, k
		}
	}
	return found
}

func commonPrefix(a, b string) int {
	a, b = strings.ToLower(a), strings.ToLower(b)
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// NoAnswer is Late's text for a deadline of unknown length.
const NoAnswer = "no answer in time"

// Late puts err into plain words ("no answer within 5s", or NoAnswer for 0) if it has Go's words for a deadline, as
// errors of net/http, os/exec and pgx do, perhaps from another machine. It returns any other error unchanged.
func Late(err error, within time.Duration) error {
	if err == nil {
		return nil
	}
	words := NoAnswer
	if within > 0 {
		words = "no answer within " + FormatDuration(within)
	}
	before := err.Error()
	said := strings.NewReplacer(context.DeadlineExceeded.Error(), words, os.ErrDeadlineExceeded.Error(), words).
		Replace(before)
	if said == before {
		return err
	}
	return Worded(said, err)
}

// Worded is an error with these words that wraps causes.
func Worded(words string, causes ...error) error { return &worded{words, causes} }

type worded struct {
	words  string
	causes []error
}

func (w *worded) Error() string   { return w.words }
func (w *worded) Unwrap() []error { return w.causes }

// Pattern compiles a regular expression at its first use, so that not every start of genv pays for it.
func Pattern(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}

// Printable puts a foreign text on one line: characters that could move a cursor, or hide or reorder text, are escaped
// as in Go, as "\n" or "\xff" for a byte that is not UTF-8.
func Printable(s string) string { return escape(s, unicode.IsPrint) }

// PrintableLines is Printable, but keeps newlines.
func PrintableLines(s string) string {
	return escape(s, func(r rune) bool { return r == '\n' || unicode.IsPrint(r) })
}

// OneLine is Printable with one space for each run of white space.
func OneLine(s string) string { return Printable(strings.Join(strings.Fields(s), " ")) }

// Masked is Printable with a question mark for each escaped character.
func Masked(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, strings.ToValidUTF8(s, "?"))
}

func escape(s string, keep func(rune) bool) string {
	if utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !keep(r) }) < 0 {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case keep(r):
			b.WriteRune(r)
		default:
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		}
		s = s[size:]
	}
	return b.String()
}

// Union returns the lines of first, and those of second that first lacks.
func Union(first, second []string) []string {
	return slices.Concat(first, slices.DeleteFunc(slices.Clone(second),
		func(line string) bool { return slices.Contains(first, line) }))
}

// Cut returns at most n bytes of a text's beginning, in whole characters.
func Cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// Shorten cuts a text to at most n characters, the last one a … if it was cut.
func Shorten(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

// Head is a writer that keeps the beginning of its input, such as a program's output.
type Head struct {
	Limit int  // in bytes
	Cut   bool // more was written

	kept strings.Builder
}

// Write implements io.Writer. It returns no error, which could end the program.
func (h *Head) Write(p []byte) (int, error) {
	room := min(len(p), h.Limit-h.kept.Len())
	h.Cut = h.Cut || room < len(p)
	h.kept.Write(p[:room])
	return len(p), nil
}

func (h *Head) String() string { return h.kept.String() }

// Tail is a writer that keeps the end of its input. It is safe for concurrent use.
type Tail struct {
	Limit int // in bytes

	mu   sync.Mutex
	kept []byte
}

func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	t.kept = append(t.kept[:0], t.kept[max(0, len(t.kept)-t.Limit):]...)
	return len(p), nil
}

func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.kept)
}

// LastLine is the last line with text, printable and short: there programs say why they failed.
func LastLine(output string) string {
	output = strings.TrimSpace(output)
	return Printable(Cut(output[strings.LastIndexAny(output, "\r\n")+1:], 300))
}
