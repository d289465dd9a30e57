package text

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

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
