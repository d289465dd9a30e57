package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Digest is the same for controllers with the same file and the same flags.
func (f *File) Digest() string {
	var b strings.Builder
	b.WriteString(f.text)
	write := func(whose string, s *Settings) {
		for _, key := range keys() {
			if s.has(key.Key) {
				fmt.Fprintf(&b, "\n%s%s=%s", whose, key.Key, key.Text(&s.Settings))
			}
		}
	}
	write("", &f.Flags)
	for _, user := range slices.Sorted(maps.Keys(f.UserFlags)) {
		own := f.UserFlags[user]
		write(string(user)+" ", &own)
	}
	sum := sha256.Sum256([]byte(b.String()))
	return hex.EncodeToString(sum[:16])
}
