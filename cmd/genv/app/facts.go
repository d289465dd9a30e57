package app

import (
	"slices"
	"strings"
)

// Parts of genv, for which a fact is worth to be mentioned.
const (
	shells  = "activate deactivate attach detach config home status lock run shell"
	local   = "devices envs gpus history why enforce monitor usage doctor"
	fleets  = "remote"
	loops   = "enforce watch"
	general = ""
)

// fact is an entry of the pages of some commands: of those whose second or last word is in
// of. The page of genv itself has all.
type fact struct {
	of string
	Entry
}

func (p *Page) factsOf(list []fact) (entries []Entry) {
	words := strings.Fields(p.Name)
	for _, f := range list {
		of := strings.Fields(f.of)
		if len(words) == 1 || f.of == general || slices.Contains(of, words[1]) || slices.Contains(of, words[len(words)-1]) {
			entries = append(entries, f.Entry)
		}
	}
	return entries
}

// exitStatus are the exit codes; README.md has the same.
func (p *Page) exitStatus() []Entry {
	if p.Name == "genv run" || p.Name == "genv lock" {
		return []Entry{{"0 to 255", "that of the command"}, {"1", "genv failed, and says why; nothing was changed"}}
	}
	return p.factsOf([]fact{
		{general, Entry{"0", "success; with hosts: all of them answered, and did what they were sent"}},
		{general, Entry{"1", "wrong usage or configuration: nothing was done"}},
		{fleets, Entry{"3", "some hosts failed, or the outcome of their reports is unknown; stderr lists them by cause"}},
		{fleets, Entry{"4", "no host answered"}},
		{"enforce", Entry{"5", "safety limits of the policy held back actions of the last cycle, or an operator had put enforcement on hold"}},
		{"enforce", Entry{"6", "the last cycle could not be recorded"}},
		{"enforce", Entry{"7", "most hosts refused, since another controller acts on them: the loop has ended"}},
		{"enforce", Entry{"10", "with --exit-code: a dry run found something to do"}},
	})
}

func variablesOfAll() []fact {
	return []fact{
		{shells + " " + local, Entry{"GENV_TMPDIR", "the folder of the state files (default: /var/tmp/genv)"}},
		{shells, Entry{"GENV_ENVIRONMENT_ID", "the environment of this shell; set by `genv activate`"}},
		{shells, Entry{"GENV_ALLOW_OVER_SUBSCRIPTION", "1 attaches devices even if they are full, as --over-subscribe does"}},
		{shells, Entry{"GENV_BYPASS", "1 lets the nvidia-smi and docker shims run the real programs unchanged"}},
		{"history why enforce usage", Entry{"GENV_AUDIT_LOG", "the record; off for none"}},
		{"enforce usage", Entry{"GENV_ROOT_DIR", "the folder of root's notes and copies (default: /var/lib/genv)"}},
		{"enforce usage", Entry{"GENV_TERMINATE_PROCESSES", "0 spares processes on this host: only attachments are removed"}},
		{loops + " top", Entry{"GENV_SOCKET", "the unix socket of the running controller; off for none"}},
		{fleets + " policy", Entry{"XDG_CONFIG_HOME", "the folder of genv/hosts.yaml (default: ~/.config)"}},
		{loops, Entry{"XDG_STATE_HOME", "the folder of genv/, in which a loop keeps its memory (default: ~/.local/state)"}},
		{fleets, Entry{"SSH_AUTH_SOCK", "the agent with the keys to log in with"}},
		{fleets + " gpus", Entry{"NO_COLOR", "if it is not empty, nothing is coloured"}},
	}
}

func filesOfAll() []fact {
	return []fact{
		{shells + " " + local, Entry{"/var/tmp/genv/envs.json, devices.json", "the environments and devices of this machine"}},
		{"activate config home", Entry{".genv/, ~/.genv/", "saved configuration"}},
		{fleets + " policy", Entry{"~/.config/genv/hosts.yaml, /etc/genv/hosts.yaml", "the inventory, if no other file is named"}},
		{fleets, Entry{"~/.ssh/config, ~/.ssh/known_hosts", "how hosts are reached, and their keys, as for ssh(1)"}},
		{"history why enforce usage", Entry{"/var/log/genv/audit.jsonl", "the record of this machine"}},
		{"enforce usage", Entry{"/var/lib/genv/", "root's notes and copies of the state files"}},
		{"enforce", Entry{"~/.local/state/genv/", "what a loop remembers, unless --state-dir names another folder"}},
		{loops + " top", Entry{"/run/genv-controller/controller.sock", "the socket of a controller that root runs"}},
	}
}
