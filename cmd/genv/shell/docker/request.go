package docker

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// ContainerEnvironment is the environment that a container belongs to.
type ContainerEnvironment struct {
	EID     snapshot.EnvID
	Name    string
	Devices []Device // attached, by index
	Token   string   // tells genv's container runtime who starts the container; empty for none
}

// Device is an attached device, or an attached MIG instance.
type Device struct {
	Index snapshot.DeviceIndex
	// UUID is set for a MIG instance, and on a guarded host: there the user's docker daemon counts only attached
	// devices.
	UUID snapshot.GPUUUID
}

// Reasons for refusing a container's request.
var (
	ErrNoDevices   = errors.New("no GPU is attached")
	ErrTooMany     = errors.New("more GPUs than are attached")
	ErrNotAttached = errors.New("not an attached GPU")
	ErrRequest     = errors.New("not understood")
)

func all(value string) bool {
	return value == "all" || value == "-1" || value == "count=all" || value == "count=-1"
}

// gpus rewrites the value of --gpus, a line of CSV: "all", a number, or fields such as count=2, "device=0,1" and
// driver=nvidia.
func (env ContainerEnvironment) gpus(value string) (string, error) {
	if all(value) && len(env.Devices) == 0 {
		return "0", nil // as in 1.4.3
	}
	fields, err := csv.NewReader(strings.NewReader(value)).Read()
	if err != nil {
		return "", fmt.Errorf("--gpus %s: %w: %w", value, ErrRequest, err)
	}
	what, kept := "--gpus "+value, []string{}
	request := func() ([]Device, error) { return env.first(what, "1") } // docker's default
	for i, field := range fields {
		key, operand, named := strings.Cut(field, "=")
		switch {
		case !named && i == 0:
			request = func() ([]Device, error) { return env.first(what, field) }
		case key == "count":
			request = func() ([]Device, error) { return env.first(what, operand) }
		case key == "device":
			request = func() ([]Device, error) { return env.pick(what, operand) }
		case key == "driver" || key == "capabilities" || key == "options":
			kept = append(kept, field)
		default:
			return "", fmt.Errorf("%s: %w: write --gpus all, a number, or '\"device=0,1\"'", what, ErrRequest)
		}
	}
	devices, err := request()
	if err != nil {
		return "", err
	}
	if len(devices) == 0 {
		return value, nil // --gpus 0
	}
	return line(append([]string{"device=" + join(devices)}, kept...))
}

func (env ContainerEnvironment) first(what, count string) ([]Device, error) {
	if count == "all" || count == "-1" {
		return env.pick(what, "all")
	}
	n, err := strconv.ParseUint(count, 10, 16)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w: %q is not a number of GPUs", what, ErrRequest, count)
	case n > 0 && len(env.Devices) == 0:
		return nil, env.noDevices(what)
	case n > uint64(len(env.Devices)):
		return nil, fmt.Errorf("%s: %w (%d): run genv attach --count %d first", what, ErrTooMany, len(env.Devices), n)
	}
	return env.Devices[:n], nil
}

// pick returns listed devices, which must be attached, or all. An index means all attached MIG instances of its device.
func (env ContainerEnvironment) pick(what, list string) ([]Device, error) {
	if len(env.Devices) == 0 {
		return nil, env.noDevices(what)
	}
	if list == "all" {
		return env.Devices, nil
	}
	if devices, ok := env.byUUID(list); ok {
		return devices, nil
	}
	indices, err := text.ParseIndices[snapshot.DeviceIndex](list)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", what, ErrRequest, err)
	}
	var devices []Device
	for _, index := range indices {
		before := len(devices)
		for _, d := range env.Devices {
			if d.Index == index {
				devices = append(devices, d)
			}
		}
		if len(devices) == before {
			return nil, fmt.Errorf("%s: %d is %w: this environment has %s", what, index, ErrNotAttached, env.indices())
		}
	}
	return devices, nil
}

func (env ContainerEnvironment) indices() string {
	var indices []snapshot.DeviceIndex
	for _, d := range env.Devices {
		indices = append(indices, d.Index)
	}
	return text.JoinIndices(slices.Compact(indices))
}

func (env ContainerEnvironment) noDevices(what string) error {
	return fmt.Errorf("%s: %w to environment %s: run genv attach first", what, ErrNoDevices, env.EID)
}

func line(fields []string) (string, error) {
	var text strings.Builder
	w := csv.NewWriter(&text)
	if err := w.Write(fields); err != nil {
		return "", err
	}
	w.Flush()
	return strings.TrimSuffix(text.String(), "\n"), w.Error()
}

const cdi = "nvidia.com/gpu=" // prefix of GPUs in --device, by the Container Device Interface

// cdi rewrites such a flag. CDI names are root's indices, or UUIDs of MIG instances: a device in MIG mode has no name.
func (env ContainerEnvironment) cdi(value string) ([]string, error) {
	devices, err := env.pick("--device "+value, strings.TrimPrefix(value, cdi))
	var args []string
	for _, d := range devices {
		name := d.Index.String()
		if snapshot.CheckInstance(d.UUID) == nil {
			name = string(d.UUID)
		}
		args = append(args, "--device", cdi+name)
	}
	return args, err
}

const (
	visible     = "NVIDIA_VISIBLE_DEVICES"
	visibleNone = "void"
)

func join(devices []Device) string {
	if len(devices) == 0 {
		return visibleNone
	}
	names := make([]string, len(devices))
	for i, d := range devices {
		names[i] = cmp.Or(string(d.UUID), d.Index.String())
	}
	return strings.Join(names, ",")
}

// byUUID parses CUDA_VISIBLE_DEVICES' form.
func (env ContainerEnvironment) byUUID(list string) (devices []Device, ok bool) {
	for uuid := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(env.Devices, func(d Device) bool { return uuid != "" && string(d.UUID) == uuid })
		if i < 0 {
			return nil, false
		}
		devices = append(devices, env.Devices[i])
	}
	return devices, true
}

// ErrUnknownFlag means that the meaning of the next argument is unknown: a value or the image.
var ErrUnknownFlag = errors.New("unknown flag")

// flagSet has a command's flags with dashes and separated by spaces. As in the Go package pflag, a switch takes a value
// only after "=", other flags take the next argument, and short flags may be grouped ("-ite A=b").
type flagSet struct{ switches, valued string }

// From docker(1).
var globalFlags = flagSet{
	switches: " -D --debug -h --help --tls --tlsverify -v --version ",
	valued:   " --config -c --context -H --host -l --log-level --tlscacert --tlscert --tlskey ",
}

// From docker-run(1), up to 28, with the hidden and the deprecated ones.
var runFlags = flagSet{
	switches: " -d --detach --disable-content-trust --help --init -i --interactive --no-healthcheck " +
		"--oom-kill-disable --privileged -P --publish-all -q --quiet --read-only --rm --sig-proxy -t --tty " +
		"--use-api-socket ",
	valued: " --add-host --annotation -a --attach --blkio-weight --blkio-weight-device --cap-add --cap-drop " +
		"--cgroup-parent --cgroupns --cidfile --cpu-count --cpu-percent --cpu-period --cpu-quota --cpu-rt-period " +
		"--cpu-rt-runtime -c --cpu-shares --cpus --cpuset-cpus --cpuset-mems --detach-keys --device " +
		"--device-cgroup-rule --device-read-bps --device-read-iops --device-write-bps --device-write-iops --dns " +
		"--dns-opt --dns-option --dns-search --domainname --entrypoint -e --env --env-file --expose --gpus " +
		"--group-add --health-cmd --health-interval --health-retries --health-start-interval --health-start-period " +
		"--health-timeout -h --hostname --io-maxbandwidth --io-maxiops --ip --ip6 --ipc --isolation --kernel-memory " +
		"-l --label --label-file --link --link-local-ip --log-driver --log-opt --mac-address -m --memory " +
		"--memory-reservation --memory-swap --memory-swappiness --mount --name --net --net-alias --network " +
		"--network-alias --oom-score-adj --pid --pids-limit --platform -p --publish --pull --restart --runtime " +
		"--security-opt --shm-size --stop-signal --stop-timeout --storage-opt --sysctl --tmpfs --ulimit -u --user " +
		"--userns --uts -v --volume --volume-driver --volumes-from -w --workdir ",
}

type flag struct {
	name  string // with dashes; the last one of a group of short flags
	value string // empty for a switch
	args  []string
}

// read reads flags up to "--" or another argument. There is no rest if the last flag lacks its value: an added argument
// would become the value.
func (s flagSet) read(args []string) (flags []flag, rest []string, err error) {
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' && args[0] != "--" {
		f, err := s.one(args)
		if err != nil {
			return nil, nil, err
		}
		flags = append(flags, f)
		args = args[len(f.args):]
	}
	return flags, args, nil
}

func (s flagSet) one(args []string) (flag, error) {
	name, value, joined := strings.Cut(args[0], "=")
	if !strings.HasPrefix(name, "--") {
		name, value, joined = s.short(args[0])
	}
	switch {
	case has(s.switches, name):
		return flag{name: name, args: args[:1]}, nil
	case has(s.valued, name) && joined:
		return flag{name, value, args[:1]}, nil
	case has(s.valued, name) && len(args) > 1:
		return flag{name, args[1], args[:2]}, nil
	case has(s.valued, name):
		return flag{name: name, args: args}, nil
	}
	return flag{}, fmt.Errorf("%w %s", ErrUnknownFlag, name)
}

// short finds the flag of a group that takes a value, and its value, which is the rest of the group.
func (s flagSet) short(group string) (name, value string, joined bool) {
	for i := 1; i < len(group); i++ {
		name = "-" + group[i:i+1]
		if !has(s.switches, name) {
			value = group[i+1:]
			return name, strings.TrimPrefix(value, "="), value != ""
		}
		if strings.HasPrefix(group[i+1:], "=") {
			return name, group[i+2:], true
		}
	}
	return name, "", false
}

func has(set, name string) bool { return slices.Contains(strings.Fields(set), name) }
