// Package text reads and writes small texts, each kind in one place: durations, amounts of memory, lists of device
// indices, host patterns, and hints for misspelt words. It makes foreign text, which others chose, safe for a terminal.
//
// It imports no other package of genv, so that every package may use it.
package text

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/xrash/smetrics"
)

// maxShown is how many characters of a foreign text Shown keeps.
const maxShown = 32

// Shown is an id, a name or a command as it is shown to people. Users choose these texts, so one that isn't an ordinary
// word is quoted, shortened to 32 characters, and made printable: it can't look like a part of genv's own message. An
// ordinary word of at most 32 letters, digits and the marks ._:@/+- is unchanged, as in 1.4.3.
//
// The quoted text contains no quotation mark, so that it can't seem to end early.
func Shown(text string) string {
	if ordinary(text) {
		return text
	}
	return Quoted(text, maxShown)
}

// Quoted quotes a foreign text as Shown does, but keeps another number of characters.
func Quoted(text string, most int) string {
	return `"` + Shorten(strings.Map(harmless, text), most) + `"`
}

// ShownCommand is a command line without the folder of its program. It is unchanged if
// all its words are ordinary; otherwise it is quoted as in Shown.
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

// ordinary says whether a text can be shown unchanged. "N/A" is shown where there is no environment.
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

// harmless replaces a character: quotation marks of all kinds by an apostrophe, and
// characters that are invisible, reorder text or overlap others by a question mark.
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

// maxUsername is the length of an account name in bytes.
const maxUsername = 256

// CheckUsername returns an error unless a name can be that of an account. NSS may give any name
// that fits into a field of passwd(5), such as ann@corp.example, CORP\jdoe or First Last. A comma
// separates names, and a dash at the beginning would be an option of ssh.
func CheckUsername(name string) error {
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

// Hint suggests the known word nearest to a misspelt one: did you mean "enforce"? If none is near, it is otherwise.
func Hint(word string, known []string, otherwise string) string {
	if near := Nearest(word, known); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return otherwise
}

// Nearest is the known word nearest to a misspelt one, or "" if none is near. If several are equally near, it is the
// one that begins like the word for longest, then the first. A host without its domain means the full name.
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

// commonPrefix is the number of bytes with which both words begin, in any case.
func commonPrefix(a, b string) int {
	a, b = strings.ToLower(a), strings.ToLower(b)
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// NoAnswer are the words of Late for a deadline of unknown length.
const NoAnswer = "no answer in time"

// Late is err in plain words where it has Go's for a deadline, as errors of net/http, os/exec and pgx do:
// "no answer within 5s", or "no answer in time" where it isn't known within what, which is 0 then. The
// words may also be those of another machine. Any other error stays as it is.
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

// Worded is an error with these words, which wraps causes.
func Worded(words string, causes ...error) error { return &worded{words, causes} }

type worded struct {
	words  string
	causes []error
}

func (w *worded) Error() string   { return w.words }
func (w *worded) Unwrap() []error { return w.causes }

// Pattern compiles a regular expression when it is first used: every start of genv would pay for it otherwise.
func Pattern(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}
