package doctor

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot/doctor"
)

// Difference is how far a host's clock is ahead of the controller's.
type Difference struct {
	OffsetMS      int64 `json:"offset_ms"`
	UncertaintyMS int64 `json:"uncertainty_ms"` // the true offset is at most this far from it
}

// The difference from which a clock is off or wrong, beyond the uncertainty.
const (
	clockOff   = 2 * time.Second
	clockWrong = time.Minute
)

// measurements is how often the clock is read: the quickest answer says most.
const measurements = 3

// measureClock reads the host's clock between two readings of ours.
func (e *examination) measureClock(ctx context.Context) {
	command := remote.Command{Args: []string{"sh", "-c", `echo; echo "$0 date"; date +%s.%N`, e.token}}
	var best *measurement
	failure := errors.New("the host's `date` printed no time")
	for range measurements {
		before, start := e.Now(), time.Now()
		out, err := e.run(ctx, command)
		took := time.Since(start)
		if err != nil {
			failure = err
			break
		}
		at := strings.TrimSpace(sections(out.Stdout, e.token)["date"])
		if m, ok := measure(before, took, at); ok && (best == nil || m.uncertainty < best.uncertainty) {
			best = &m
		}
	}
	if best == nil {
		e.add(doctor.Unknown(doctor.Clock, "%v", failure))
		return
	}
	e.Clock = &Difference{best.offset.Milliseconds(), best.uncertainty.Milliseconds() + 1}
	e.add(best.check())
}

// measurement is an offset, and how far from it the true one can be.
type measurement struct{ offset, uncertainty time.Duration }

// measure compares the time that the host printed, as seconds with or without a fraction,
// with the time of our clock before the command, which took a while: the host read its
// clock at some moment of it.
func measure(before time.Time, took time.Duration, printed string) (measurement, bool) {
	seconds, fraction, _ := strings.Cut(printed, ".")
	whole, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil || whole < 0 || whole > math.MaxInt32*1000 {
		return measurement{}, false
	}
	there, resolution := time.Unix(whole, 0), time.Second
	if nanos, err := strconv.ParseUint(fraction, 10, 32); err == nil && len(fraction) == 9 {
		there, resolution = time.Unix(whole, int64(nanos)), 0
	}
	middle := before.Add(took / 2)
	return measurement{there.Add(resolution / 2).Sub(middle), (took + resolution) / 2}, true
}

func (m measurement) check() doctor.Check {
	direction := "ahead of"
	if m.offset < 0 {
		direction = "behind"
	}
	seen := fmt.Sprintf("%s ± %s %s the controller", seconds(m.offset.Abs()), seconds(m.uncertainty), direction)
	atLeast := m.offset.Abs() - m.uncertainty
	return doctor.First(doctor.Clock,
		doctor.If(atLeast > clockWrong, "clock-wrong", "%s", seen),
		doctor.If(atLeast > clockOff, "clock-off", "%s", seen),
		doctor.If(m.uncertainty > clockOff, "clock-uncertain", "%s", seen),
		doctor.If(true, "", "%s", seen))
}

func seconds(d time.Duration) string {
	if d > time.Minute {
		return d.Round(time.Second).String()
	}
	return fmt.Sprintf("%.3fs", d.Seconds())
}
