package config

import "context"

// ControlPath is the socket of the ssh that may run as master for a host, as ssh
// would use it; empty for none. With `ControlMaster yes` or `ask` ssh uses none, since
// it is to be the master itself.
//
// It always asks ssh, which may put a hash into the name that differs between its
// versions (%C). Without ssh there is no master.
func (r *Resolver) ControlPath(ctx context.Context, q Query) (string, error) {
	if err := Valid(q); err != nil || r.ssh == "" {
		return "", err
	}
	values, err := r.askOpenSSH(ctx, q)
	if err != nil {
		return "", err
	}
	switch values.first("controlmaster") {
	case "yes", "true", "ask":
		return "", nil
	}
	return unlessNone(values.first("controlpath")), nil
}
