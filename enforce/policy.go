package enforce

import "github.com/seed-3119e985/genv/snapshot"

// Policy says which rules hold. The zero Policy enforces nothing.
type Policy struct {
	// NonEnvProcesses terminates processes that are in no environment that is
	// registered on their host.
	NonEnvProcesses bool
	// EnvDevices terminates processes that use a device to which their
	// environment is not attached.
	EnvDevices bool
	// EnvMemory terminates processes until their environment is within its
	// memory capacity again, device by device.
	EnvMemory bool
	// MaxDevicesPerUser is how many devices a user may have attached on all
	// hosts together; nil for no cap. MaxDevicesForUser says it for one user,
	// over MaxDevicesPerUser or alone.
	MaxDevicesPerUser *int
	MaxDevicesForUser map[snapshot.Username]int
}

// DefaultPolicy is what `genv enforce` does without a flag, as in 1.4.3.
func DefaultPolicy() Policy { return Policy{EnvDevices: true, EnvMemory: true} }

// MaxDevices is the cap that holds for a user, and whether there is one.
func (p *Policy) MaxDevices(user snapshot.Username) (limit int, capped bool) {
	if n, ok := p.MaxDevicesForUser[user]; ok {
		return n, true
	}
	if p.MaxDevicesPerUser != nil {
		return *p.MaxDevicesPerUser, true
	}
	return 0, false
}
