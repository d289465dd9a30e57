package operators

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/policycheck"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/inventory"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/live/socket"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/remote/statedir"
)

// exemptions are those of a running controller, or of the folder of a stopped one.
type exemptions interface {
	where() (socket, stateDir string)
	state(ctx context.Context) (operator.State, error)
	act(ctx context.Context, a *operator.Action) (string, error)
	names(ctx context.Context) (hosts, users []string) // none if unknown
	close()
}

func (o *controllerOptions) exemptions(c *cli.Context, readOnly bool) (exemptions, error) {
	path := o.socket
	if path == "" {
		path = socket.Find(o.Getenv, os.Geteuid())
	}
	if path != "" && path != socket.Off {
		living, err := socket.Answers(c.Context, path)
		switch {
		case errors.Is(err, unix.EACCES):
			return nil, command.UsageError("the controller's socket %s: %w; %s", path, err, command.AskWithSudo)
		case err != nil:
			return nil, err
		case living:
			return &runningController{path, live.NewClient(path)}, nil
		case o.socket != "":
			return nil, command.WrongFlag("socket",
				" %s: no controller listens there; start it, or change its folder: --socket off --state-dir DIR", path)
		}
	}
	return o.stoppedController(readOnly)
}

type runningController struct {
	path   string
	client *live.Client
}

func (r *runningController) where() (path, stateDir string) { return r.path, "" }
func (r *runningController) close()                         { r.client.Close() }

// state waits 20 s for a controller's first cycle, before which it shows no exemptions.
func (r *runningController) state(ctx context.Context) (operator.State, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		switch fleet, err := r.client.Fleet(ctx); {
		case ctx.Err() != nil:
			return operator.State{}, errors.New("the controller has just begun, and its exemptions aren't known yet: " +
				"try again in a minute")
		case err != nil:
			return operator.State{}, err
		case fleet.Cycle > 0:
			return operator.State{Exemptions: fleet.Exemptions, Hold: fleet.Hold}, nil
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (r *runningController) act(ctx context.Context, a *operator.Action) (string, error) {
	answer, err := live.SendAction(ctx, r.path, *a)
	return answer.Text, err
}

func (r *runningController) names(ctx context.Context) (hosts, users []string) {
	fleet, err := r.client.Fleet(ctx)
	if err != nil {
		return nil, nil
	}
	for i := range fleet.Hosts {
		hosts = append(hosts, string(fleet.Hosts[i].Name))
	}
	for i := range fleet.Users {
		users = append(users, string(fleet.Users[i].Name))
	}
	return hosts, users
}

type stoppedController struct {
	*controllerOptions
	dir   string
	store *statedir.Folder
	log   *audit.Log // nil for none
}

func (o *controllerOptions) stoppedController(readOnly bool) (*stoppedController, error) {
	dirs := enforcement.ControllerDirs(o.Getenv, o.stateDir)
	switch len(dirs) {
	case 0:
		return nil, command.UsageError("no controller runs, and none has run here: " +
			"name its folder with --state-dir DIR, or its socket with --socket PATH")
	case 1:
	default:
		return nil, command.UsageError("no controller runs, and there are the folders %s: name one with "+
			"--state-dir DIR", strings.Join(dirs, " and "))
	}
	dir := dirs[0]
	s := &stoppedController{controllerOptions: o, dir: dir}
	if path := o.auditLog; path != "" {
		if err := audit.Check(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, command.WrongFlag("audit-log", ": %w; nothing was done", err)
		}
		s.log = &audit.Log{Path: path, MaxBytes: 1 << 62} // only the controller rotates it
	}
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, command.WrongFlag("state-dir", ": %w", err)
	}
	var err error
	s.store, err = statedir.Open(dir)
	target, _ := filepath.EvalSymlinks(dir)
	owner, _ := command.OtherOwner(target) // optional in the error
	switch {
	case errors.Is(err, statedir.ErrInUse) && readOnly:
	case errors.Is(err, statedir.ErrInUse):
		_ = s.store.Close() // nothing was written
		return nil, command.UsageError("%w, and its socket was not found: name it with --socket PATH", err)
	case err != nil && owner != "":
		return nil, command.UsageError("%s belongs to %s, the controller's account: %s, "+
			"with that account as `account:` in /etc/genv/config.yaml (%w)", dir,
			strings.Replace(owner, "#", "uid ", 1), command.AskWithSudo, err)
	case err != nil:
		return nil, command.WrongFlag("state-dir", ": %w", err)
	}
	return s, nil
}

func (s *stoppedController) where() (path, stateDir string) { return "", s.dir }
func (s *stoppedController) close()                         { _ = s.store.Close() } // act has written everything

func (s *stoppedController) state(context.Context) (operator.State, error) {
	now := s.Now()
	state, err := s.store.LoadOperator(now)
	if err != nil {
		return operator.State{}, err
	}
	state.Exemptions, _ = state.Exemptions.Expire(now)
	return state, nil
}

func (s *stoppedController) act(ctx context.Context, a *operator.Action) (string, error) {
	var log controller.Recorder
	note := "; the next controller records it at its start"
	if s.log != nil {
		log, note = s.log, ""
	}
	if a.Kind == operator.Exempt {
		if err := s.checkRule(a.Exemption()); err != nil {
			return "", err
		}
	}
	line, err := s.store.Operate(enforcement.Self(ctx), a, log, s.Now())
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s. No controller runs on %s%s.", line, s.dir, note), nil
}

// checkRule refuses a rule that is neither known nor a cap of the policy that the next controller reads.
func (s *stoppedController) checkRule(e policy.Exemption) error {
	file := policy.Default()
	path, err := command.FindConfig(s.Getenv, command.PolicyFile)
	if err == nil && path != "" {
		file, err = policycheck.ReadPolicy(path)
	}
	if err != nil {
		file = policy.Default() // the rule may still be known
	}
	if wrong := e.CheckRule(file); wrong != nil {
		return command.WrongFlag("rule", ": %w", errors.Join(wrong, err))
	}
	return nil
}

func (s *stoppedController) names(context.Context) (hosts, users []string) {
	selection := inventory.Selection{DefaultFiles: command.ConfigPaths(s.Getenv, command.HostsFile)}
	list, _, _ := inventory.Known(selection, command.OpenAtOnce) // an error means that the hosts are unknown
	for i := range list {
		hosts = append(hosts, list[i].Name)
	}
	return hosts, nil
}
