package local

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// objection is why a process isn't signalled. The zero value is none.
type objection struct {
	status order.OutcomeStatus
	reason string
	// evasive: the process itself may have caused it, as often as it likes (see processRecord.evasions).
	evasive bool
}

func (o objection) raised() bool { return o.status != "" }

func gone() objection { return objection{status: order.StatusGone} }

func changed(format string, args ...any) objection {
	return objection{status: order.StatusChanged, reason: fmt.Sprintf(format, args...)}
}

func (o objection) evasiveIf(evasive bool) objection {
	o.evasive = evasive
	return o
}

func refused(format string, args ...any) objection {
	return objection{status: order.StatusRefused, reason: fmt.Sprintf(format, args...)}
}

func failed(format string, args ...any) objection {
	return objection{status: order.StatusFailed, reason: fmt.Sprintf(format, args...)}
}

func unreadable(err error) objection {
	switch {
	case errors.Is(err, proc.ErrGone): // although its pidfd was open
		return changed("it can't be seen in /proc any more")
	case errors.Is(err, os.ErrPermission):
		return failed("not permitted to read it: run genv as root (sudo)")
	}
	return failed("%v", err)
}

// sendError is the objection that an error of sending a signal means.
func sendError(err error) objection {
	switch {
	case err == nil:
		return objection{}
	case errors.Is(err, unix.ESRCH):
		return gone()
	case errors.Is(err, unix.EPERM):
		return failed("not permitted to signal it: run genv as root (sudo)")
	}
	return failed("signal: %v", err)
}

func notBegun(ctx context.Context) objection { return failed("not begun: %v", context.Cause(ctx)) }
