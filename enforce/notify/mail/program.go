package mail

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"time"

	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// maxOutput is how much of a program's output is read.
const maxOutput = 4 << 10 // bytes

// errTimedOut says that a program was killed: it may have done its work.
var errTimedOut = errors.New("it did not end in time and was killed")

// runProgram runs a program with an input, and returns what it prints on stdout. Its
// children end with it when the time is over.
func runProgram(ctx context.Context, within time.Duration, input []byte, command ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdin = bytes.NewReader(input)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8"}
	out, complaint := &text.Head{Limit: maxOutput}, &text.Head{Limit: maxOutput}
	cmd.Stdout, cmd.Stderr = out, complaint
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	switch said := text.OneLine(complaint.String()); {
	case err == nil, errors.Is(err, exec.ErrWaitDelay): // a child may still have its output open
		return out.String(), nil
	case ctx.Err() != nil:
		return "", errTimedOut
	case said != "":
		return "", fmt.Errorf("%w: %s", err, text.Shorten(said, 300))
	}
	return "", err
}

// The exit codes of sendmail(8) that say that another try may succeed (sysexits.h).
const (
	exitOSError     = 71 // EX_OSERR: no memory, no process
	exitTemporarily = 75 // EX_TEMPFAIL
)

// sendmail is a program such as /usr/sbin/sendmail.
type sendmail struct{ settings *policy.Mail }

// send gives a message to the program.
func (s sendmail) send(ctx context.Context, to string, data []byte) error {
	program := s.settings.Sendmail
	// Programs of this kind expect the lines of this system, and make the others of them.
	input := bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	_, err := runProgram(ctx, s.settings.Timeout, input, program, "-i", "-f", s.settings.Sender.Address, to)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errTimedOut):
		return finally(fmt.Errorf("%s: %w; it may have sent the mail, which is not sent again", program, err))
	case errors.As(err, &exit) && exit.ExitCode() != exitTemporarily && exit.ExitCode() != exitOSError:
		return finally(fmt.Errorf("%s: %w", program, err))
	}
	return fmt.Errorf("%s: %w", program, err)
}
