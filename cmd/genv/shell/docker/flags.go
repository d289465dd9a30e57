package docker

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrUnknownFlag means that a flag is unknown: the next argument may be its value or
// the image.
var ErrUnknownFlag = errors.New("unknown flag")

// flagSet has the flags of a command, with their dashes and separated by spaces.
// Docker reads flags as the Go package pflag does: a switch takes a value only after
// "=", any other flag the next argument, and short ones may be grouped ("-ite A=b").
type flagSet struct{ switches, valued string }

// The flags before the command: docker(1).
var globalFlags = flagSet{
	switches: " -D --debug -h --help --tls --tlsverify -v --version ",
	valued:   " --config -c --context -H --host -l --log-level --tlscacert --tlscert --tlskey ",
}

// The flags of `docker run` and `docker create`: docker-run(1), up to 28, with
// the hidden and the deprecated ones.
var runFlags = flagSet{
	switches: " -d --detach --disable-content-trust --help --init -i --interactive --no-healthcheck --oom-kill-disable" +
		" --privileged -P --publish-all -q --quiet --read-only --rm --sig-proxy -t --tty --use-api-socket ",
	valued: " --add-host --annotation -a --attach --blkio-weight --blkio-weight-device --cap-add --cap-drop --cgroup-parent" +
		" --cgroupns --cidfile --cpu-count --cpu-percent --cpu-period --cpu-quota --cpu-rt-period --cpu-rt-runtime" +
		" -c --cpu-shares --cpus --cpuset-cpus --cpuset-mems --detach-keys --device --device-cgroup-rule --device-read-bps" +
		" --device-read-iops --device-write-bps --device-write-iops --dns --dns-opt --dns-option --dns-search --domainname" +
		" --entrypoint -e --env --env-file --expose --gpus --group-add --health-cmd --health-interval --health-retries" +
		" --health-start-interval --health-start-period --health-timeout -h --hostname --io-maxbandwidth --io-maxiops" +
		" --ip --ip6 --ipc --isolation --kernel-memory -l --label --label-file --link --link-local-ip --log-driver --log-opt" +
		" --mac-address -m --memory --memory-reservation --memory-swap --memory-swappiness --mount --name --net --net-alias" +
		" --network --network-alias --oom-score-adj --pid --pids-limit --platform -p --publish --pull --restart --runtime" +
		" --security-opt --shm-size --stop-signal --stop-timeout --storage-opt --sysctl --tmpfs --ulimit -u --user --userns" +
		" --uts -v --volume --volume-driver --volumes-from -w --workdir ",
}

// flag is a flag as it was given.
type flag struct {
	name  string // with its dashes; of a group of short ones, the last
	value string // empty for a switch
	args  []string
}

// read reads flags up to "--" or the first argument that isn't a flag. There is no rest
// if the last argument is a flag without its value: what is added would become the value.
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

// one reads the first flag.
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

// short finds, in a group of short flags, the one that takes a value: what follows it
// is that value.
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
