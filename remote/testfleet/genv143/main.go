// Genv143 is a genv for simulated hosts that speaks the formats of genv 1.4.3 and nothing else. It was written from
// that program's recorded behaviour: it waits for the lock as long as needed, writes state files in place, drops
// environments whose processes are gone, believes what a process claims, and signals whatever has the PID of an order.
//
// It knows `version`, `usage snapshot`, `usage execute`, `envs activate`, `devices attach` and
// `devices detach`, with the flags that tests use.
package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// machine is the machine on which this program runs.
type machine struct {
	*testfleet.Machine
	in   io.Reader
	out  io.Writer
	user string // who runs it
}

// update changes the state files without what has ended.
func (h machine) update(change func(*state.Files) error) error {
	return h.Update(func(files *state.Files) error {
		for i := range files.Environments {
			e := &files.Environments[i]
			e.PIDs = slices.DeleteFunc(e.PIDs, func(pid snapshot.PID) bool { return errors.Is(syscall.Kill(int(pid), 0), syscall.ESRCH) })
		}
		files.Environments = slices.DeleteFunc(files.Environments, func(e snapshot.Environment) bool { return len(e.PIDs)+len(e.KernelIDs) == 0 })
		for i := range files.Devices {
			d := &files.Devices[i]
			d.Attachments = slices.DeleteFunc(d.Attachments, func(a snapshot.Attachment) bool { return files.Environment(a.EID) == nil })
		}
		return change(files)
	})
}

func (h machine) snapshot(part string) error {
	s := &snapshot.Snapshot{}
	err := h.update(func(files *state.Files) error {
		s.Environments, s.Devices = files.Environments, files.Devices
		return nil
	})
	if err == nil && (part == "" || part == "processes") {
		s.Processes, err = h.processes()
	}
	if err != nil {
		return err
	}
	var document []byte
	switch part {
	case "devices":
		document, err = snapshot.EncodeDevices(s.Devices)
	case "envs":
		document, err = snapshot.EncodeEnvironments(s.Environments)
	case "processes":
		document, err = snapshot.EncodeProcesses(s.Processes)
	default:
		document, err = snapshot.EncodeSnapshot(s)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(h.out, "%s\n", document)
	return err
}

// execute signals processes and then detaches.
func (h machine) execute() error {
	data, err := io.ReadAll(h.in)
	if err != nil {
		return err
	}
	o, err := order.Decode143(data)
	if err != nil {
		return err
	}
	for _, t := range o.Terminate {
		fmt.Fprintln(h.out, t.String())
		if err := syscall.Kill(int(t.Process.PID), syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return h.update(func(files *state.Files) error {
		for _, d := range o.Detach {
			if len(files.Detach(d.Environment.EID, d.Device)) > 0 {
				fmt.Fprintln(h.out, d.String())
			}
		}
		return nil
	})
}

func (h machine) activate(flags map[string]string) error {
	pid, errPID := strconv.Atoi(flags["pid"])
	uid, errUID := strconv.Atoi(flags["uid"])
	if err := cmp.Or(errPID, errUID); err != nil {
		return err
	}
	return h.update(func(files *state.Files) error {
		files.Environments = append(files.Environments, snapshot.Environment{
			EID: snapshot.EnvID(flags["eid"]), UID: snapshot.UID(uid), Username: snapshot.Username(h.user),
			Creation: snapshot.DateOf(time.Now()), PIDs: []snapshot.PID{snapshot.PID(pid)},
		})
		return nil
	})
}

func (h machine) onDevice(flags map[string]string, do func(*state.Files, *snapshot.Device, snapshot.EnvID)) error {
	index, err := strconv.Atoi(flags["index"])
	if err != nil {
		return err
	}
	return h.update(func(files *state.Files) error {
		d := files.Device(snapshot.DeviceIndex(index))
		if d == nil {
			return fmt.Errorf("there is no device %d", index)
		}
		do(files, d, snapshot.EnvID(flags["eid"]))
		return nil
	})
}

// processes are those on the simulated GPUs, with the environments that they claim. One
// whose environ can't be read is outside any.
func (h machine) processes() ([]snapshot.Process, error) {
	driver, err := gpus.Read(h.GPUs)
	if err != nil {
		return nil, err
	}
	var list []snapshot.Process
	for _, app := range driver.Living("").Apps {
		pid := snapshot.PID(app.PID)
		if app.UsedMiB == nil {
			continue
		}
		at := slices.IndexFunc(list, func(p snapshot.Process) bool { return p.PID == pid })
		if at < 0 {
			claim, _, _ := proc.FS{}.Environ(pid, snapshot.ClaimVariable) // unreadable is none
			at, list = len(list), append(list, snapshot.Process{PID: pid, EID: snapshot.EnvID(claim)})
		}
		list[at].Usage = append(list[at].Usage, snapshot.DeviceUsage{Index: snapshot.DeviceIndex(app.Device), Memory: snapshot.MiB(*app.UsedMiB)})
	}
	return list, nil
}

func main() {
	h := machine{&testfleet.Machine{State: os.Getenv("GENV_TMPDIR"), GPUs: os.Getenv(gpus.EnvFile)}, os.Stdin, os.Stdout, os.Getenv("USER")}
	if err := h.run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func (h machine) run(args []string) error {
	if len(args) == 1 && args[0] == "version" {
		_, err := fmt.Fprintln(h.out, "1.4.3")
		return err
	}
	if len(args) < 2 {
		return errors.New("usage: genv [-h] SUBCOMMAND")
	}
	flags, err := parse(args[2:])
	if err != nil {
		return err
	}
	switch command := strings.Join(args[:2], " "); command {
	case "usage snapshot":
		return h.snapshot(flags["type"])
	case "usage execute":
		return h.execute()
	case "envs activate":
		return h.activate(flags)
	case "devices attach":
		return h.onDevice(flags, func(_ *state.Files, d *snapshot.Device, eid snapshot.EnvID) {
			if d.Attachment(eid) == nil {
				d.Attachments = append(d.Attachments, snapshot.Attachment{EID: eid, Time: snapshot.DateOf(time.Now())})
			}
		})
	case "devices detach":
		return h.onDevice(flags, func(files *state.Files, d *snapshot.Device, eid snapshot.EnvID) { files.Detach(eid, d.Index) })
	}
	return fmt.Errorf("genv %s: error: argument SUBCOMMAND: invalid choice: '%s'", args[0], args[1])
}

// parse reads flags that all have a value.
func parse(words []string) (map[string]string, error) {
	flags := make(map[string]string)
	for i := 0; i < len(words); i += 2 {
		name, ok := strings.CutPrefix(words[i], "--")
		if !ok || i+1 == len(words) {
			return nil, fmt.Errorf("genv: error: unrecognized arguments: %s", words[i])
		}
		flags[name] = words[i+1]
	}
	return flags, nil
}
