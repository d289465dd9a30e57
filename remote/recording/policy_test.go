package recording_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote/recording"
	"github.com/seed-3119e985/genv/snapshot"
)

// A policy with flags means the same after it was recorded, and one that is understood in another
// way is refused.
func TestPolicy(t *testing.T) {
	flag := policy.Source{By: "--flag"}
	parse := func() *policy.File {
		file, err := policy.Parse("policy.yaml", []byte("defaults:\n  max-devices-per-user: 4\n  warn: {for: 10m}\n"))
		require.NoError(t, err)
		return file
	}
	withFlags, everyFlag := parse(), parse()
	withFlags.UserFlags = map[snapshot.Username]policy.Settings{"john": {MaxDevices: policy.Value[int]{On: true, Value: 3, From: flag}}}
	yes := policy.Value[bool]{On: true, Value: true, From: flag}
	everyFlag.Flags = policy.Settings{
		NonEnvProcesses: yes, EnvDevices: yes, MaxMemory: policy.Value[snapshot.Memory]{On: true, Value: snapshot.MustMemory("4g"), From: flag},
		Idle: policy.Value[enforce.Idle]{On: true, Value: enforce.Idle{After: time.Hour, Below: 5}, From: flag},
		Warn: policy.Value[enforce.Warn]{On: true, Value: enforce.Warn{Cycles: 3}, From: flag}, Guard: policy.Value[guard.Mode]{On: true, Value: guard.Watch, From: flag},
	}
	for name, f := range map[string]*policy.File{"a file": parse(), "none": policy.Default(), "caps of users": withFlags, "flags": everyFlag} {
		t.Run(name, func(t *testing.T) {
			data, err := json.Marshal(recording.PolicyOf(f))
			require.NoError(t, err)
			var p recording.Policy
			require.NoError(t, json.Unmarshal(data, &p))
			read, err := p.File()
			require.NoError(t, err)
			require.Equal(t, f.Digest(), read.Digest())
			require.Equal(t, name != "a file" && name != "none", p.Overridden())
			p.Digest = "of another version"
			_, err = p.File()
			require.ErrorContains(t, err, "use the version that recorded it")
		})
	}
}
