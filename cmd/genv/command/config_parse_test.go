package command_test

import (
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/fleet"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// onHosts are the commands below `genv remote`.
var onHosts = sync.OnceValue(func() []*cli.Command { return fleet.OnHosts(command.Program{Getenv: os.Getenv}) })

func TestValuesOfACommand(t *testing.T) {
	etc := `
fanout: 8
username: everyone
hosts: "@all"
enforce: {interval: 30, audit-log: /var/log/a, fanout: 16}
remote: {timeout: 5, exclude: [gpu-07, "label:x"]}
wait: {within: 2h}
`
	for _, test := range []struct{ name, user, command, want string }{
		{"a section over remote over the top", "", "enforce", "audit-log=/var/log/a exclude=gpu-07,label:x fanout=16 host=@all interval=30 timeout=5 username=everyone"},
		{"no other command's", "", "gpus", "exclude=gpu-07,label:x fanout=8 host=@all timeout=5 username=everyone"},
		{"the user's file over the other", "fanout: 1\nusername: me\n", "enforce", "audit-log=/var/log/a exclude=gpu-07,label:x fanout=1 host=@all interval=30 timeout=5 username=me"},
		{"hosts in the user's file replace those of the other", "gpus: {hostfile: /my/hosts}\n", "gpus", "exclude=gpu-07,label:x fanout=8 hostfile=/my/hosts timeout=5 username=everyone"},
		{"and of no other command", "gpus: {hostfile: /my/hosts}\n", "envs", "exclude=gpu-07,label:x fanout=8 host=@all timeout=5 username=everyone"},
		{"install takes no hosts of others", "remote: {hosts: b}\n", "install", "exclude=gpu-07,label:x fanout=8 timeout=5 username=everyone"},
		{"install takes its own hosts", "install: {hosts: b}\n", "install", "exclude=gpu-07,label:x fanout=8 host=b timeout=5 username=everyone"},
		{"comments alone", "# fanout: 1\n\n  # more\n", "wait", "exclude=gpu-07,label:x fanout=8 host=@all timeout=5 username=everyone within=2h"},
		{"yes and no", "quiet: false\nremote: {no-sudo: true}\n", "devices", "exclude=gpu-07,label:x fanout=8 host=@all no-sudo=true quiet=false timeout=5 username=everyone"},
	} {
		t.Run(test.name, func(t *testing.T) {
			system := proctest.Try(command.ParseConfig("/etc/genv/config.yaml", []byte(etc), onHosts())).OK(t)
			own := proctest.Try(command.ParseConfig("config.yaml", []byte(test.user), onHosts())).OK(t)
			at := slices.IndexFunc(onHosts(), func(cmd *cli.Command) bool { return cmd.Name == test.command })
			values := command.ConfigFor(onHosts()[at], own, system)
			var got []string
			for _, flag := range slices.Sorted(maps.Keys(values)) {
				got = append(got, flag+"="+strings.Join(values[flag].Words, ","))
			}
			require.Equal(t, test.want, strings.Join(got, " "))
			if i := values["fanout"]; test.user == "" && test.command == "enforce" {
				require.Equal(t, "/etc/genv/config.yaml:5:48", i.Place.String())
			}
		})
	}
}

func TestConfigErrors(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"fanot: 3", `c.yaml:1:1: unknown key "fanot"; did you mean "fanout"?`},
		{"enforc: {interval: 3}", `c.yaml:1:1: unknown key "enforc"; did you mean "enforce"?`},
		{"enforce: {intervall: 3}", `c.yaml:1:11: unknown key "intervall"; did you mean "interval"?`},
		{"host: a", `c.yaml:1:1: unknown key "host"; did you mean "hosts"?`},
		{"colour: red", "c.yaml:1:1: unknown key \"colour\"; `genv remote --help` lists the flags"},
		{"interval: 3", "c.yaml:1:1: interval is not a flag of all commands; write it under `enforce:`, `monitor:`, `top:`, `wait:`, `watch:`"},
		{"gpus: {interval: 3}", "c.yaml:1:8: interval is not a flag of genv remote gpus; write it under `enforce:`, `monitor:`, `top:`, `wait:`, `watch:`"},
		{"history: {hosts: a}", "c.yaml:1:11: hosts is not a flag of genv remote history; write it under "},
		{"enforce: 3", "c.yaml:1:10: enforce: expected a mapping, as in `name: value`, but found a number \"3\""},
		{"enforce:", "c.yaml:1:1: enforce: expected a mapping"},
		{"[a]", "c.yaml:1:1: expected a mapping"},
		{"fanout: 1\nfanout: 2", "c.yaml:2:1: mapping key \"fanout\" already defined"},
		{"username: \"\"", "c.yaml:1:11: the value is empty; write it, or remove the line"},
		{"hosts: {a: b}", "c.yaml:1:9: hosts: expected text"},
		{"hosts: [a, [b]]", "c.yaml:1:12: expected text"},
		{"hostfile: hosts.yaml", `c.yaml:1:11: "hosts.yaml" is not an absolute path; write one that begins with /`},
		{"hosts: [hosts.yaml]", "c.yaml:1:8: hosts.yaml: write the file with its absolute path"},
		{"policy: policy.yaml", `c.yaml:1:9: "policy.yaml" is not an absolute path`},
		{"enforce: {socket: here}", `c.yaml:1:19: "here" is not an absolute path`},

		{"insecure-ignore-host-keys: true", "c.yaml:1:1: insecure-ignore-host-keys can't be set here: it is asked for in a single run; write --insecure-ignore-host-keys in the command line"},
		{"insecure-ignore-host-keys: false", "c.yaml:1:1: insecure-ignore-host-keys can't be set here"},
		{"remote: {insecure-ignore-host-keys: true}", "c.yaml:1:10: insecure-ignore-host-keys can't be set here"},
		{"enforce: {act-unrecorded: true}", "c.yaml:1:11: act-unrecorded can't be set here: it is asked for in a single run"},
		{"top: {allow-actions: true}", "c.yaml:1:7: allow-actions can't be set here"},
		{"enforce: {env-devices: false}", "c.yaml:1:11: env-devices can't be set here: it would override the policy file; write it into policy.yaml"},
		{"devices: {format: json}", "c.yaml:1:11: format can't be set here: programs that run genv rely on the default"},
		{"enforce: {dry-run: true}", "c.yaml:1:11: dry-run can't be set here: it is about a single run"},
		{"enforce: {take-over: true}", "c.yaml:1:11: take-over can't be set here: it is about a single run"},
	} {
		t.Run(test.text, func(t *testing.T) {
			file, err := command.ParseConfig("c.yaml", []byte(test.text), onHosts())
			require.ErrorContains(t, err, test.want)
			require.NotContains(t, err.Error(), "\n")
			require.Nil(t, file)
		})
	}
	for _, text := range []string{"policy: none", "policy: /p", "enforce: {socket: 'off', policy: none}", "hosts: [/x/hosts.yaml, 'label:file=a.yaml', '!b']", "hosts: 'gpu-*,!gpu-07'", "enforce: {interval: 0}", "\uFEFF# none", "top: {filter: 'util<5'}"} {
		proctest.Try(command.ParseConfig("c.yaml", []byte(text), onHosts())).OK(t, text)
	}
}

// The example's values are comments, and all are valid.
func TestConfigExample(t *testing.T) {
	text := proctest.ReadFile(t, "../../../config.example.yaml")
	file := proctest.Try(command.ParseConfig("config.example.yaml", text, onHosts())).OK(t)
	require.Empty(t, file.Sections(), "installed as it is, it changes nothing")

	var all []string
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "#"); ok && (!strings.HasPrefix(rest, " ") || strings.HasPrefix(rest, "  ")) {
			all = append(all, rest)
		}
	}
	file = proctest.Try(command.ParseConfig("config.example.yaml", []byte(strings.Join(all, "")), onHosts())).OK(t)
	require.NotEmpty(t, file.Sections()["(top)"])
	require.NotEmpty(t, file.Sections()["enforce"])
}

// FuzzParseConfig: any text gives values or an error of one line, and nothing that is refused.
func FuzzParseConfig(f *testing.F) {
	for _, seed := range []string{"fanout: 3\nenforce: {interval: 5}", "enforce: {act-unrecorded: true}", "hosts: [a, 'b,c.yaml']", "a: [", "top: {top: 1}", "{}", "#", "policy: none"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		file, err := command.ParseConfig("c.yaml", []byte(text), onHosts())
		if err != nil {
			require.NotContains(t, err.Error(), "\n")
			return
		}
		for section, values := range file.Sections() {
			for _, v := range values {
				require.Empty(t, command.Refusal(onHosts(), v.Flag))
				require.NotEmpty(t, section)
				require.NotContains(t, v.Words, "")
			}
		}
	})
}
