package enforcement

import (
	"io"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/snapshot"
)

// maxPolicyBytes is how much of a policy file is read.
const maxPolicyBytes = 4 << 20

func parsePolicy(path string) (*policy.File, error) {
	data, err := ReadPolicyFile(path)
	if err != nil {
		return nil, err
	}
	file, err := policy.Parse(path, data)
	if err != nil {
		return nil, command.UsageError("%w; `genv policy check %s` lists all errors", err, path)
	}
	return file, nil
}

// ReadPolicyFile reads the text of a policy, which may come through a pipe.
func ReadPolicyFile(path string) ([]byte, error) {
	f, err := command.OpenAtOnce(path)
	if err != nil {
		return nil, command.UsageError("the policy: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxPolicyBytes+1))
	if err != nil {
		return nil, command.UsageError("the policy: %w", err)
	}
	if len(data) > maxPolicyBytes {
		return nil, command.UsageError("%s is too long: at most %d bytes are read", path, maxPolicyBytes)
	}
	return data, nil
}

// localPolicy is a policy for this machine, which has no name in findings, and its
// own in the policy.
type localPolicy struct {
	enforce.Policy
	name snapshot.Hostname
}

// Settings implements enforce.Policy.
func (p localPolicy) Settings(q enforce.Query) *enforce.Settings {
	q.Host = p.name
	return p.Policy.Settings(q)
}

// Exempt implements enforce.Policy.
func (p localPolicy) Exempt(s enforce.Subject) (string, bool) {
	s.Host = p.name
	return p.Policy.Exempt(s)
}
