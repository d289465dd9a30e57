package readonly

import (
	"bufio"
	"bytes"
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nss"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// describeProcesses prints the time zone of the host's clock, whether genv's state files are there, and what /proc,
// ps(1) and getent(1) show of the processes with the PIDs $@: the mounts of /proc, status (proc_pid_status(5)), lines
// "Cgroup PID …", "User " with a line of passwd(5), and "Command PID …". Users choose commands, so their lines come
// last. The kernel and ps escape newlines. getent without a uid would print all users. It is one line without
// exclamation marks, so that any login shell passes it on (see remote.Quote).
const describeProcesses = `(unset TZ; date +"Clock %z"); ` +
	`if [ -e "${GENV_TMPDIR:-/var/tmp/genv}/devices.json" ]; then echo Registered; fi; ` +
	`[ $# -gt 0 ] || exit 0; ` +
	`pids=$(IFS=,; echo "$*"); files=; groups=; ` +
	`for p do files="$files /proc/$p/status"; groups="$groups /proc/$p/cgroup"; done; ` +
	`sed -n "s|.* /proc .*|Mount &|p" /proc/self/mountinfo; ` +
	`cat $files; ` +
	`grep -H : $groups | sed "s|^/proc/\([0-9]*\)/cgroup:|Cgroup \1 |"; ` +
	`uids=$(cat $files | sed -n "s/^Uid:[^0-9]*\([0-9]*\).*/\1/p" | sort -u); ` +
	`[ -z "$uids" ] || timeout 3 getent passwd $uids | sed "s/^/User /"; ` +
	`LC_ALL=C.UTF-8 ps -ww -o pid=,args= -p "$pids" | sed "s/^ */Command /" | cut -c1-1024`

// Describe sets the visible owners, commands and containers of processes.
func (r Reading) Describe(ctx context.Context, host remote.Host, processes []snapshot.Process) Descriptions {
	d := Descriptions{byPID: make(map[string]*snapshot.Process), Names: make(map[snapshot.UID]snapshot.Username)}
	args := []string{"sh", "-c", describeProcesses, "sh"}
	for i := range processes {
		pid := strconv.Itoa(int(processes[i].PID))
		args = append(args, pid)
		d.byPID[pid] = &processes[i]
	}
	out, _ := r.Run(ctx, host, remote.Command{Args: marked(args...)}) // partial output is used, too
	d.parse(dataIn(out.Stdout))
	return d
}

// Descriptions are the output of describeProcesses.
type Descriptions struct {
	byPID     map[string]*snapshot.Process
	Names     map[snapshot.UID]snapshot.Username // on the host
	UTCOffset *int                               // of the host's clock, in seconds; nil if unknown

	Registered bool // the host has state files, so devices may be attached

	mounts  string            // of /proc, as in mountinfo
	name    string            // the last Name in a status
	process *snapshot.Process // of the last Pid in a status; nil before it
}

func (d *Descriptions) parse(data []byte) {
	commands := false
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		line := lines.Text()
		key, value, _ := strings.Cut(line, " ")
		if commands = commands || key == "Command"; commands {
			d.parseCommand(key, value)
			continue
		}
		switch key {
		case "Clock":
			if at, err := time.Parse("-0700", value); err == nil {
				_, east := at.Zone()
				d.UTCOffset = &east
			}
		case "Mount":
			d.mounts += value + "\n"
		case "Registered":
			d.Registered = true
		case "Cgroup":
			if pid, groups, _ := strings.Cut(value, " "); d.byPID[pid] != nil && d.byPID[pid].Container == "" {
				d.byPID[pid].Container = proc.ParsePlace([]byte(groups)).ID
			}
		case "User":
			for _, account := range nss.ParseAccounts([]byte(value)) {
				if name := account.Username(); name != "" && d.Names[account.UID] == "" {
					d.Names[account.UID] = name
				}
			}
		default:
			d.parseStatus(line)
		}
	}
	if proc.ParseHiding(d.mounts).On {
		for _, p := range d.byPID {
			p.HideCommand()
		}
	}
}

// parseStatus reads a line of several /proc/PID/status. The kernel escapes newlines in names.
func (d *Descriptions) parseStatus(line string) {
	key, value, _ := strings.Cut(line, ":\t")
	switch key {
	case "Name":
		d.name, d.process = value, nil
	case "Pid":
		if d.process = d.byPID[value]; d.process != nil && snapshot.CheckText("name", d.name) == nil {
			d.process.Name = d.name
		}
	case "Uid":
		owner, _, _ := strings.Cut(value, "\t")
		if n, err := strconv.ParseUint(owner, 10, 32); err == nil && d.process != nil {
			uid := snapshot.UID(n)
			d.process.UID = &uid
		}
	}
}

// parseCommand reads a line of ps(1). A name in brackets means that the process has no command line.
func (d *Descriptions) parseCommand(key, value string) {
	pid, command, _ := strings.Cut(value, " ")
	p := d.byPID[pid]
	if key != "Command" || p == nil || p.Command != "" || command == "["+p.Name+"]" {
		return
	}
	p.Command = text.Cut(strings.TrimSpace(text.Masked(command)), snapshot.MaxCommand)
}
