package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// endingDelay is how long it may take until this program, as the parent, has
// heard of all processes that genv has ended.
const endingDelay = 3 * time.Second

// wrongs lists what is not as it must be: before anything was enforced every
// process runs and every attachment stands; after it, those without a violation.
func (s *stage) wrongs(ctx context.Context, enforced bool) []string {
	ctx, cancel := context.WithTimeout(ctx, endingDelay)
	defer cancel()
	var wrong []string
	for i, spec := range jobSpecs {
		job := s.jobs[i]
		ends := enforced && spec.violation != ""
		if ends {
			select {
			case <-job.Ended():
			case <-ctx.Done():
			}
		}
		if job.Running() == ends {
			wrong = append(wrong, fmt.Sprintf("process %d (%s) on %s %s", job.PID, spec.program, spec.host, ifElse(ends, "still runs", "has ended")))
		}
	}
	for key, env := range s.envs {
		if !env.Shell.Running() {
			wrong = append(wrong, fmt.Sprintf("%s's shell on %s has ended", key.user, key.host))
		}
	}
	for _, spec := range hostSpecs {
		wrong = append(wrong, s.wrongAttachments(spec.name, enforced)...)
	}
	return wrong
}

// wrongAttachments compares a host's own books with the scene.
func (s *stage) wrongAttachments(host string, enforced bool) []string {
	devices, err := s.machines[host].Devices()
	if err != nil {
		return []string{fmt.Sprintf("%s: devices.json: %v", host, err)}
	}
	var wrong []string
	for _, spec := range envSpecs {
		if spec.host != host {
			continue
		}
		var want []snapshot.DeviceIndex
		for _, a := range spec.attached {
			if !enforced || a.violation == "" {
				want = append(want, a.device)
			}
		}
		if got := snapshot.AttachedTo(devices, s.envs[envKey{host, spec.user}].EID); !slices.Equal(got, want) {
			wrong = append(wrong, fmt.Sprintf("%s on %s is attached to devices %v, not %v", spec.user, host, got, want))
		}
	}
	return wrong
}

func ifElse(condition bool, yes, no string) string {
	if condition {
		return yes
	}
	return no
}
