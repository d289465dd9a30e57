package main

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

// jobVariable in the environment makes this program play somebody's job. Its
// value says how long the job takes to end when it is asked to.
const jobVariable = "GENV_DEMO_JOB"

const (
	endsAtOnce  = "at once"
	endsSlowly  = "slowly" // it writes a checkpoint, say
	checkpoint  = time.Second
	terminated  = 128 + 15
	jobLifetime = 10 * time.Minute // far longer than the demo; nothing lasts for ever
)

// work does nothing until it is asked to end.
func work(ending string) int {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	select {
	case <-asked:
		if ending == endsSlowly {
			time.Sleep(checkpoint)
		}
		return terminated
	case <-time.After(jobLifetime):
		return 0
	}
}
