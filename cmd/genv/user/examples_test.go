package user_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v2"
	"golang.org/x/crypto/bcrypt"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/fleet"
	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/genvhost"
	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

var tomorrow = time.Now().Add(24 * time.Hour).Format("2006-01-02T15:04")

// examples have lines for each command, after its name, that together use all of
// its flags. $FLEET has the flags that reach a host.
var examples = map[string][]string{
	"activate":   {"--name x --gpus 1 --gpu-memory 4g --no-prompt --no-attach --no-load --over-subscribe", "--id $OTHER", "--shell $$", "--gpus 1 --wait"},
	"deactivate": {"", "--shell $$"},
	"llm":        {"--format json --no-header --timestamp"},
	"llm ps":     {"--format json --no-header --timestamp"},
	"llm serve":  {"--gpus 1 --gpu-memory 4g --over-subscribe --port 50123 --host localhost llama3"},
	"llm attach": {"--port 11434 llama3 " + otherwise(1)},
	"attach":     {"--count 1 --over-subscribe", "--index 7", "--count 1 --wait=1m", "--refresh", "--config", "--mig 1g.10gb"},
	"detach":     {"--index 0"},
	"config":     {"", "gpus --clear", "--save", "--load", "--quiet gpus 1"},
	"home":       {"", "--quiet"},
	"status":     {""},
	"lock":       {"true"},
	"docker":     {"run image"},
	"run":        {"--name x --gpus 1 --gpu-memory 4g --over-subscribe --quiet true", "--gpus 1 --wait true"},
	"shell":      {"--init --shell bash", "--ok", "--deinit", "--reattach", "--reconfigure"},
	"notices":    {"--new"},
	"history":    {"--user x --pid 1 --rule idle --since 2h --until 1h --notices --no-header --format csv"},
	"why":        {"--verbose --format csv --no-header"},
	"version":    {"--format json"},
	"man":        {"$DIR"},
	"completion": {"bash"},

	"devices":        {"--format csv --no-header --timestamp --no-cleanup", "--reset"},
	"devices ps":     {"--format csv --no-header --timestamp --no-cleanup", "--reset"},
	"devices attach": {"--eid $OTHER --count 1 --over-subscribe --gpu-memory 4g", "--eid $OTHER --index 0", "--eid $OTHER --mig 1g.10gb"},
	"devices detach": {"--eid $OTHER --index 0 --quiet"},
	"devices find":   {"--eid $OTHER --no-cleanup", "--eid $OTHER --reset"},
	"devices query":  {"--query index --index 0 --format csv --no-cleanup", "--query index --reset"},

	"envs":            {"--format csv --no-header --timestamp --no-cleanup", "--reset"},
	"envs ps":         {"--format csv --no-header --timestamp --no-cleanup", "--reset"},
	"envs activate":   {"--eid y --pid $$ --uid $(id -u) --username u --name x --gpus 1 --gpu-memory 4g", "--eid y --kernel-id k"},
	"envs deactivate": {"--pid 1", "--kernel-id k"},
	"envs config":     {"--eid $OTHER gpus --clear", "--eid $OTHER gpus --count 2", "--eid $OTHER name --name x", "--eid $OTHER gpu-memory --gpu-memory 4g"},
	"envs find":       {"--pid $OTHER --no-cleanup", "--kernel-id none --reset"},
	"envs query":      {"--query eid --eid $OTHER --format csv --no-cleanup", "--query eid --reset"},

	"usage snapshot": {"--type devices --format json"},
	"usage execute":  {"<$REPORT"},
	"usage wait":     {"--gpus 1 --index 0 --id x </dev/null " + otherwise(command.ExitFailed)},
	"usage serve":    {"--token t --idle 1s </dev/null"},

	"host serve":    {serveFlags},
	"host handover": {""},
	"host status":   {"--format json"},
	"host install":  {"--why-not-new", "--plan </dev/null " + otherwise(command.ExitFailed)},

	"host setup-docker": {otherwise(command.ExitFailed)},

	"enforce": {"--state-dir $DIR/state --interval 0 --events off --cycles 1 --dry-run --audit-log $DIR/log --audit-size 1m --audit-keep 1 --act-unrecorded --timestamps always --summary 1h --format json --label use=train " + ruleFlags, "--interval 0 --dry-run --by user --exit-code " + noRuleFlags},

	"reserve":     {"--gpus 1 --from now --for 1h --reason x --user root --format json " + otherwise(command.ExitFailed), "--list --cancel x " + otherwise(command.ExitFailed)},
	"help agents": {""},

	"doctor":  {"--timeout 5 --format json || test $? = 3"},
	"gpus":    {"--free --user x --model h100 --sort memory --format csv --no-header --no-summary --timestamp"},
	"monitor": {monitorFlags},

	"guard status": {"--format json"},
	"guard run":    {"--mode watch --lease 60s --first-uid 1000 --exempt-user x --exempt-device 1 " + otherwise(command.ExitFailed)},
	"guard off":    {"--veto " + otherwise(command.ExitFailed)},
	"guard resume": {otherwise(command.ExitFailed)},

	"policy check":   {"--inventory a,b --leader etcd://etcd-1/genv/lab --usage-db postgres://genv@db.lab/genv --state-dir $DIR --policy none --strict --format json $DIR/policy"},
	"policy explain": {"--inventory a --user x --host a --at 2026-11-20 --socket off --state-dir $DIR --format csv " + ruleFlags, noRuleFlags},

	"policy test-notify": {"--policy $DIR/policy --to x " + otherwise(command.ExitFailed)},

	"remote activate": {"$FLEET --name x --gpus 1 --gpu-memory 4g --no-prompt --no-attach --over-subscribe", "$MORE", "$FLEET --gpus 1 --wait=1s || true"},
	"remote enforce": {
		"$FLEET --state-dir $DIR/state --interval 0 --events off --cycles 1 --dry-run --audit-log $DIR/log --audit-size 1m --audit-keep 1 --act-unrecorded --timestamps always --summary 1h --usage-db off --usage-fleet lab --usage-keep 90d --usage-names 30d --format json " + ruleFlags, "$FLEET --interval 0 --dry-run --by user --exit-code " + noRuleFlags, "$MORE --interval 0", "$FLEET --interval 1 --cycles 2 --take-over --socket $DIR/socket --metrics 127.0.0.1:0 " + webFlags,
		"$FLEET --interval 1 --cycles 1 --state-dir $DIR/state --leader etcds://127.0.0.1:1/lab --leader-ca $DIR/cert --leader-cert $DIR/cert --leader-key $DIR/key --leader-login $DIR/login",
	},
	"remote history": {"--audit-log $DIR/log --host a --user x --pid 1 --rule idle --since 2h --until 1h --notices --no-header --format csv", "--audit-log $DIR/log --stats"},
	"remote report":  {"--cap month --state-dir $DIR/none " + otherwise(command.ExitFailed), "--usage-db postgres://127.0.0.1:1/x --usage-fleet lab " + otherwise(command.ExitFailed), "--state-dir $DIR --since 7d --until 1d --by user --top 3 --policy $DIR/policy --format csv --no-header " + otherwise(command.ExitFailed)},
	"remote devices": {"$FLEET --format csv --no-header --no-summary --processes", "$MORE"},
	"remote envs":    {"$FLEET --format csv --no-header --no-summary --timestamp", "$MORE"},
	"remote gpus":    {"$FLEET --free --user x --model h100 --sort memory --format csv --no-header --no-summary --timestamp", "$MORE"},
	"remote hosts":   {"$FLEET --format csv --no-header --no-summary", "$MORE"},
	"remote exempt": {
		"--socket off --state-dir $DIR --audit-log $DIR/exemptions --user root --host a --rule idle --for 1h --reason x --format csv --no-header",
		"--socket off --state-dir $DIR --host a --device 1 --from " + tomorrow + " --for 1h --reason x", "--socket off --state-dir $DIR --list", "--socket off --state-dir $DIR --revoke x " + otherwise(command.ExitFailed),
	},
	"remote hold":    {"--socket off --state-dir $DIR --audit-log $DIR/exemptions --host a --reason x"},
	"remote release": {"--socket off --state-dir $DIR --audit-log $DIR/exemptions --host a --reason x " + otherwise(command.ExitFailed)},
	"remote install": {
		"$FLEET --check --upgrade --shell-setup --state root --path /usr/local/bin/genv --sudoers-for admin --host-timeout 1m --format json --no-header " + otherwise(command.ExitNoneLeft),
		"$MORE --check --uninstall " + otherwise(command.ExitNoneLeft), "$MORE --check --purge " + otherwise(command.ExitNoneLeft), "$FLEET --ask-sudo-password " + otherwise(command.ExitFailed),
		"$FLEET --check --binary-amd64 none --binary-arm64 none " + otherwise(command.ExitFailed),
	},
	"remote monitor":    {"$FLEET " + monitorFlags, "$MORE " + monitorFlags},
	"remote watch":      {"$FLEET " + watchFlags, "$MORE " + watchFlags},
	"remote wait":       {"$FLEET --gpus 1 --model h100 --memory 40g --within 1m --interval 1 --format json", "$MORE"},
	"remote top":        {"$FLEET --socket off --interval 1 --filter host=a --plain --once", "$FLEET --plain --cycles 1 --allow-actions", "$MORE --plain --once"},
	"remote llm":        {"$FLEET --format json --no-header --timestamp --no-summary", "$MORE"},
	"remote llm ps":     {"$FLEET --format json --no-header --timestamp --no-summary", "$MORE"},
	"remote llm serve":  {"$FLEET --gpus 1 --gpu-memory 4g --over-subscribe llama3", "$MORE llama3"},
	"remote llm attach": {"$FLEET llama3 " + otherwise(1), "$MORE llama3 " + otherwise(1)},
	"remote query":      {"$FLEET --query eid --name x --format csv", "$MORE --query eid"},
	"remote doctor": {
		"$FLEET --all --policy $DIR/policy --format json || test $? = 3", "$MORE || test $? = 3",
		"$FLEET --leader etcds://127.0.0.1:1/lab --leader-ca $DIR/cert --leader-cert $DIR/cert --leader-key $DIR/key --leader-login $DIR/login || test $? = 3",
	},
}

const (
	// The metrics are served until a signal comes, after the configuration is written. In
	// the shell, genv is a function, whose child is the program.
	monitorFlags = "--config-dir $DIR/metrics --port 0 --address 127.0.0.1 --interval 1 & " +
		"until [ -e $DIR/metrics/grafana/dashboards/overview.json ]; do sleep 0.1; done; rm -r $DIR/metrics; kill $(cat /proc/$!/task/*/children); wait $!"
	// The socket is served until a signal comes.
	watchFlags = "--interval 1 --timestamps always --socket $DIR/socket --metrics 127.0.0.1:0 " + webFlags + " & " +
		"until [ -S $DIR/socket ]; do sleep 0.1; done; kill $(cat /proc/$!/task/*/children); wait $!"
	// The state is root's, or this user's, until it is given back.
	serveFlags  = "& until genv host status | grep -q process; do sleep 0.1; done; kill $(cat /proc/$!/task/*/children); wait $!; genv host handover"
	webFlags    = "--web 127.0.0.1:0 --web-names self --web-config $DIR/web.yml --web-host gpus.example.org"
	ruleFlags   = "--policy $DIR/policy --max-devices-per-user 9 --max-devices-for-user x=9 --non-env-processes --env-devices --env-memory"
	noRuleFlags = "--no-non-env-processes --no-env-devices --no-env-memory"
)

// otherwise is what follows a command that ends with an exit code here: the simulated host has no shell, for example.
func otherwise(code int) string { return fmt.Sprintf("|| [ $? = %d ]", code) }

// TestFlagsThatHelpOffers: each flag that a command's help offers works in an
// example, with each format that it offers; and all other flags are refused.
func TestFlagsThatHelpOffers(t *testing.T) {
	host := genvhost.New(&snapshot.Snapshot{Devices: []snapshot.Device{{TotalMemory: snapshot.MustMemory("80g")}}})
	f := genvtest.StartFleet(t, &inprocess.Server{Name: "a", Handler: inprocess.Func(func(ctx context.Context, r *inprocess.Request) int {
		switch {
		case strings.Contains(r.Line, "--query-gpu"):
			fmt.Fprint(r.Stdout, "\ngenv-data\n0, GPU-a, 81559, 2000, 50, 44, 70.12, NVIDIA H100\n1, GPU-b, 81559, 0, 0, 31, 70.1, NVIDIA H100\n\ngenv-data 0\n")
		case strings.Contains(r.Line, "--query-compute-apps"):
			fmt.Fprint(r.Stdout, "\ngenv-data\nGPU-a, 88, 2000\n\ngenv-data 0\n")
		default:
			return host.Handle(ctx, r)
		}
		return 0
	})})
	commands := allCommands()
	require.Len(t, commands, len(examples), "a command has no example, or an example no command")
	for path, cmd := range commands {
		t.Run(path, func(t *testing.T) {
			offered := offeredFlags(t, path)
			if strings.Contains(help(t, path), "genv help connection") {
				offered = append(offered, offeredFlags(t, "help connection")...)
			}
			var visible, defined, used []string
			for _, flag := range cmd.Flags {
				defined = append(defined, flag.Names()[0])
				if flag.(cli.VisibleFlag).IsVisible() {
					visible = append(visible, flag.Names()[0])
				}
			}
			for _, example := range examples[path] {
				example = strings.NewReplacer("$FLEET", "--ssh-config --host", "$MORE", moreFleetFlags).Replace(example)
				for _, m := range regexp.MustCompile(`--([a-z0-9-]+)`).FindAllStringSubmatch(example, -1) {
					used = append(used, m[1])
				}
			}
			slices.Sort(used)
			require.ElementsMatch(t, visible, offered)
			require.ElementsMatch(t, defined, slices.Compact(used), "the examples use each flag")
			formats := offeredFormats(t, path)
			t.Parallel() // only programs run from here on
			runExamples(t, f, path, formats)
		})
	}
}

// moreFleetFlags are the flags of `genv remote`, as $MORE has them.
const moreFleetFlags = "--ssh-config --host --hostfile --exclude --username --timeout --command-timeout --fanout --exit-on-error --quiet --no-sudo --ssh --insecure-ignore-host-keys --verbose"

func runExamples(t *testing.T, f *inprocess.Fleet, path string, formats []string) {
	s := newStation(t)
	s.partition(6, gpus.MIG{Profile: "1g.10gb", UUID: "MIG-1"}, gpus.MIG{Profile: "1g.10gb", UUID: "MIG-2"}, gpus.MIG{Profile: "1g.10gb", UUID: "MIG-3"})
	dir := s.path("files")
	require.NoError(t, os.MkdirAll(dir, 0o777))
	for name, text := range map[string]string{"policy": "{}\n", "log": "", "hosts": "a\nb\n", "report": `{"terminate": {"processes": []}, "detach": {}}`, "ssh": "#!/bin/sh\n", "ollama": "#!/bin/sh\n", "docker": "#!/bin/sh\n"} {
		require.NoError(t, proctest.WriteProgram(filepath.Join(dir, name), []byte(text)))
	}
	writeWebFiles(t, dir)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "login"), []byte("genv:secret\n"), 0o600))
	require.NoError(t, os.MkdirAll(filepath.Join(s.path("admin"), ".genv"), 0o755))
	fleet := fmt.Sprintf("--ssh-config %s --host a", f.SSHConfig())
	more := fleet + " --hostfile " + dir + "/hosts --exclude b --username u --timeout 10 --command-timeout 10 --fanout 1 --exit-on-error --quiet --no-sudo --ssh builtin --insecure-ignore-host-keys --verbose"
	u := s.admin().with("DIR="+dir, "FLEET="+fleet, "MORE="+more, "REPORT="+dir+"/report", "GENV_AUDIT_LOG="+dir+"/log")
	shell := u.open("bash")
	set := "PATH=$DIR:$PATH"
	if strings.Contains(strings.Join(examples[path], "\n"), "$OTHER") {
		other := u.open("bash")
		require.Empty(t, other.say("genv activate --gpus 1").status) // its text may say that nvidia-smi is slow
		set += " OTHER=" + other.pid()
	}
	shell.sayAll(set)
	for _, example := range examples[path] {
		for _, line := range inFormats(example, formats) {
			switch path {
			case "deactivate", "attach", "detach", "config", "shell":
				shell = u.open("bash")
				shell.sayAll(set + "; genv activate --gpus 1")
			case "activate":
				shell = u.open("bash")
				shell.sayAll(set)
			}
			answer := shell.sayAll("genv " + path + " " + line)
			switch {
			case strings.Contains(line, "--reset") && os.Geteuid() != 0:
				require.Contains(t, answer.text, "only root may", line)
			default:
				require.Empty(t, answer.status, "%s %s: %s", path, line, answer.text)
			}
		}
	}
}

var formatFlag = regexp.MustCompile(`--format \w+`)

// inFormats has an example with each format, or as it is without --format.
func inFormats(example string, formats []string) (lines []string) {
	if !formatFlag.MatchString(example) {
		return []string{example}
	}
	for _, format := range formats {
		lines = append(lines, formatFlag.ReplaceAllLiteralString(example, "--format "+format))
	}
	return lines
}

// TestFlagsOfConfig: help and man pages leave them out, and config.yaml has them as keys.
func TestFlagsOfConfig(t *testing.T) {
	hidden, onHosts := map[string]bool{}, fleet.OnHosts(command.Program{Getenv: os.Getenv})
	keys := append(command.ConfigKeys(onHosts, "enforce"), command.ConfigKeys(onHosts, "install")...)
	for path, cmd := range allCommands() {
		for _, flag := range cmd.Flags {
			if name := flag.Names()[0]; !flag.(cli.VisibleFlag).IsVisible() {
				require.Contains(t, keys, name, path)
				hidden[name] = true
			}
		}
	}
	require.Equal(t, []string{
		"audit-keep", "audit-size", "fanout", "leader-ca", "leader-cert", "leader-key", "leader-login",
		"policy", "socket", "state-dir", "sudoers-for", "summary", "timestamps", "usage-fleet", "usage-keep", "usage-names", "web-names",
	}, slices.Sorted(maps.Keys(hidden)))
	require.LessOrEqual(t, len(offeredFlags(t, "remote enforce"))+1, mostFlags, "with --help")
}

// mostFlags is how many flags the help of a command has at most: more are not read.
const mostFlags = 40

// TestFlagsThatAreRefused: a flag of another command is an error, also before a subcommand that doesn't have it. Each
// command refuses some, and each flag is refused by some: all pairs would be ten thousand command lines.
func TestFlagsThatAreRefused(t *testing.T) {
	commands := allCommands()
	all := make(map[string]cli.Flag)
	for _, cmd := range commands {
		for _, flag := range cmd.Flags {
			all[flag.Names()[0]] = flag
		}
	}
	const every = 40
	for i, path := range slices.Sorted(maps.Keys(commands)) {
		cmd := commands[path]
		if path == "lock" || path == "docker" { // which takes no flags: all are the command's that it runs
			continue
		}
		words := strings.Fields(path)
		for j, name := range slices.Sorted(maps.Keys(all)) {
			flag := all[name]
			if (i+j)%every != 0 || command.Takes(cmd, name) || shortens(name, cmd) {
				continue
			}
			word := "--" + name
			if !flag.(*command.Flag).IsBoolFlag() {
				word += "=1"
			}
			r := genvtest.Run(t, append(slices.Clone(words), word)...)
			require.Equal(t, command.ExitFailed, r.Code, "%s %s", path, word)
			require.Regexp(t, `^genv: unknown flag --`+name+`(; see genv `+path+` --help| \(did you mean --[a-z-]+\?\))\n$`, r.Err)
			if len(words) == 2 {
				r = genvtest.Run(t, words[0], word, words[1])
				require.Equal(t, command.ExitFailed, r.Code, "%s %s", path, word)
				require.Regexp(t, `unknown flag --|genv `+path+` has no flag --`+name, r.Err)
			}
		}
	}
}

// shortens says whether a name begins one of a command's own flags, or an alias of one.
func shortens(name string, cmd *cli.Command) (found bool) {
	set := flag.NewFlagSet(cmd.Name, flag.ContinueOnError)
	for _, f := range cmd.Flags {
		_ = f.Apply(set) // ours never fail
	}
	set.VisitAll(func(own *flag.Flag) { found = found || strings.HasPrefix(own.Name, name) })
	return found
}

// allCommands are those that do something, by their names.
func allCommands() map[string]*cli.Command {
	commands := make(map[string]*cli.Command)
	p := command.Program{Getenv: os.Getenv}
	var add func(prefix string, list []*cli.Command)
	add = func(prefix string, list []*cli.Command) {
		for _, cmd := range list {
			if !slices.Contains([]string{"usage", "guard", "host", "policy", "remote", "help", "connection", "__complete"}, cmd.Name) {
				commands[prefix+cmd.Name] = cmd
			}
			add(prefix+cmd.Name+" ", cmd.Subcommands)
		}
	}
	all := command.New(p, genvtest.Commands)
	add("", all.Commands)
	return commands
}

var helpLine = regexp.MustCompile(`(?m)^   --([a-z0-9-]+)`)

func offeredFlags(t *testing.T, path string) []string {
	var names []string
	for _, m := range helpLine.FindAllStringSubmatch(help(t, path), -1) {
		if m[1] != "help" {
			names = append(names, m[1])
		}
	}
	return names
}

// offeredFormats are the values of --format; an empty one for commands without it.
func offeredFormats(t *testing.T, path string) []string {
	m := regexp.MustCompile(`FORMAT: (.*) \(default`).FindStringSubmatch(help(t, path))
	if m == nil {
		return []string{""}
	}
	return strings.Split(strings.ReplaceAll(m[1], " or ", ", "), ", ")
}

func help(t *testing.T, path string) string {
	return genvtest.Run(t, append(strings.Fields(path), "--help")...).OK(t).Out
}

// writeWebFiles writes a file for --web-config, web.yml, and what it names.
func writeWebFiles(t *testing.T, dir string) {
	t.Helper()
	hash := proctest.Try(bcrypt.GenerateFromPassword([]byte("password"), bcrypt.MinCost)).OK(t)
	testfleet.WriteCertificate(t, dir, "", "gpus.example.org")
	content := fmt.Appendf(nil, "tls_server_config: {cert_file: cert, key_file: key}\nbasic_auth_users: {alice: %s}\n", hash)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "web.yml"), content, 0o600))
}
