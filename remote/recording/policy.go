package recording

import (
	"fmt"
	"reflect"

	"github.com/seed-3119e985/genv/enforce/policy"
)

// PolicyOf is a policy as it is recorded.
func PolicyOf(file *policy.File) *Policy {
	p := &Policy{Path: file.Path, Text: file.Text, UserFlags: file.UserFlags, Digest: file.Digest()}
	if !reflect.ValueOf(file.Flags).IsZero() {
		flags := file.Flags
		p.Flags = &flags
	}
	return p
}

// File is the policy that was recorded. It is an error if this version of genv understands it in
// another way than the one that recorded it.
func (p *Policy) File() (*policy.File, error) {
	file := policy.Default()
	if p.Path != "" || p.Text != "" {
		var err error
		if file, err = policy.Parse(p.Path, []byte(p.Text)); err != nil {
			return nil, fmt.Errorf("the policy that was in force: %w", err)
		}
	}
	if p.Flags != nil {
		file.Flags = *p.Flags
	}
	file.UserFlags = p.UserFlags
	if file.Digest() != p.Digest {
		return nil, fmt.Errorf("the policy that was in force (%s) says something else in this version of genv: use the version that recorded it", p.Path)
	}
	return file, nil
}

// Overridden reports whether flags took precedence over the file.
func (p *Policy) Overridden() bool { return p.Flags != nil || len(p.UserFlags) > 0 }
