package enforcement

import (
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/policycheck"
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

// maxPolicyBytes is how much of a policy file is read.
const maxPolicyBytes = 4 << 20

// parsePolicy reads a policy for the accounts that it names, and those of flags.
func parsePolicy(c *cli.Context, path string, names []string) (*policy.File, error) {
	data, err := ReadPolicyFile(path)
	if err != nil {
		return nil, err
	}
	references, err := policy.References(path, data)
	for _, r := range references {
		if r.Kind == policy.ToUser {
			names = append(names, r.Name)
		}
	}
	var file *policy.File
	if err == nil {
		file, err = policy.ParseFor(path, data, accounts(c, names))
	}
	if err != nil {
		return nil, command.UsageError("%w; `genv policy check %s` lists all errors", err, path)
	}
	return file, nil
}

// accounts are the other names of users. Without them a rule holds only for the name as it is
// written.
func accounts(c *cli.Context, names []string) policy.Accounts {
	same, err := policycheck.SameUsers(c.Context, names, system.Getent)
	if err != nil {
		fmt.Fprintf(c.App.ErrWriter, "warning: other names of the policy's users are unknown: %v\n", err)
	}
	return same
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
