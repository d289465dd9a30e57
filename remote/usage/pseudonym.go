package usage

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/seed-3119e985/genv/snapshot"
)

// pseudonymPrefix begins the names that stand for users whose names are not kept. It has a colon, which separates
// the fields of passwd(5): no account can have such a name. One that a host claims counts as Other.
const pseudonymPrefix = "user:"

// Forgotten is the user who has what forgotten users had.
const Forgotten snapshot.Username = pseudonymPrefix + "forgotten"

// Pseudonym is the name that replaces a user's: with the same key always the same one. With the
// key the user can be found out, and without it not. Names that are not those of one user stay.
func Pseudonym(key []byte, user string) string {
	if !IsNamed(user) {
		return user
	}
	sum := hmac.New(sha256.New, key)
	sum.Write([]byte(user))
	return pseudonymPrefix + hex.EncodeToString(sum.Sum(nil)[:6])
}

// IsPseudonym reports whether a name replaces that of a user, or of users, for privacy.
func IsPseudonym(user string) bool { return strings.HasPrefix(user, pseudonymPrefix) }

// IsNamed reports whether a name is that of one user.
func IsNamed(user string) bool { return user != "" && user != string(Other) && !IsPseudonym(user) }
