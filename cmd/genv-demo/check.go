package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// endingDelay is how long it may take until this program, as the parent, sees
// the ends of all processes that genv has ended.
const endingDelay = 3 * time.Second

// differences lists what differs from the scene: before enforcement every
// process runs and every device is attached; after it, those without a violation.
func (s *stage) differences(ctx context.Context, enforced bool) (list []string) {
	ctx, cancel := context.WithTimeout(ctx, endingDelay)
	defer cancel()
	for i, spec := range jobSpecs {
		job := s.jobs[i]
		ends, problem := enforced && spec.violation != "", "has ended"
		if ends {
			problem = "still runs"
			select {
			case <-job.Ended():
			case <-ctx.Done():
			}
		}
		if job.Running() == ends {
			list = append(list, fmt.Sprintf("process %d (%s) on %s %s", job.PID, spec.program, spec.host, problem))
		}
	}
	for _, spec := range envSpecs {
		if difference := s.environmentDiffers(spec, enforced); difference != "" {
			list = append(list, difference)
		}
	}
	return list
}

// environmentDiffers compares an environment and its host's state files with the
// scene; "" means that they are equal.
func (s *stage) environmentDiffers(spec envSpec, enforced bool) string {
	env := s.envs[envKey{spec.host, spec.user}]
	if !env.Shell.Running() {
		return fmt.Sprintf("the shell of %s on %s has ended", spec.user, spec.host)
	}
	devices, err := s.machines[spec.host].Devices()
	if err != nil {
		return fmt.Sprintf("%s: devices.json: %v", spec.host, err)
	}
	var want []snapshot.DeviceIndex
	for _, a := range spec.attached {
		if !enforced || a.violation == "" {
			want = append(want, a.device)
		}
	}
	if got := snapshot.AttachedTo(devices, env.EID); !slices.Equal(got, want) {
		return fmt.Sprintf("%s on %s is attached to devices %v, not %v", spec.user, spec.host, got, want)
	}
	return ""
}
