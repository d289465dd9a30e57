package render

import (
	"io"
	"regexp"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// WriteCSV prints rows by RFC 4180, with a newline alone as Unix tools expect. Users
// choose what is in most cells, and spreadsheets take some texts for formulas: see cell.
func WriteCSV(w io.Writer, rows [][]string) error {
	var b strings.Builder
	for _, row := range rows {
		for i, value := range row {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(cell(value))
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// plainNumber is what may begin with a sign: a spreadsheet shows it as it is.
var plainNumber = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[-+]?[0-9]+(\.[0-9]+)?$`) })

// cell is a value as a cell of CSV. One that a spreadsheet would take for a
// formula gets an apostrophe in front, which makes it text there. A value with a
// semicolon or tab is quoted, for spreadsheets that split cells at these.
func cell(value string) string {
	formula := value != "" && strings.ContainsRune("=+-@\t\r\n＝＋－＠", firstRune(value)) && !plainNumber().MatchString(value)
	if formula {
		value = "'" + value
	}
	if formula || value == `\.` || strings.ContainsAny(value, "\",;\t\r\n") || unicode.IsSpace(firstRune(value)) {
		return `"` + strings.ReplaceAll(value, `"`, `""`) + `"`
	}
	return value
}

func firstRune(value string) rune {
	r, _ := utf8.DecodeRuneInString(value)
	return r
}
