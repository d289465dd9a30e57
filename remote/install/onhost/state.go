package onhost

import (
	"context"
	"os"
	"strings"
)

var hostUnits = []string{"genv-host.socket", "genv-host.service"}

func (r *Request) units() []part {
	return []part{
		{path: unitFolder + hostUnits[0], content: hostSocket},
		{path: unitFolder + hostUnits[1], content: strings.ReplaceAll(hostService, usual, r.Path)},
	}
}

// changeState gives the state to root's service or all users. "" lets an existing service continue with this genv.
func (i *installation) changeState(ctx context.Context, to string) (err error) {
	if to == StateShared {
		return i.failure("state", i.shareState(ctx))
	}
	for _, p := range i.units() {
		if sum := fileSum(i.at(p.path)); err == nil && sum != "?" && sum != Checksum(p.content) { // a mask stays
			err = i.put(ctx, p)
		}
	}
	how := "try-restart"
	if to == StateRoot && err == nil {
		how = "restart"
		err = i.systemctl(ctx, "enable", hostUnits...)
	}
	if err == nil {
		err = i.restart(ctx, how, hostUnits...)
	}
	return i.failure("state", err)
}

func (i *installation) shareState(ctx context.Context) error {
	err := i.systemctl(ctx, "--no-reload disable --now", hostUnits...)
	if err == nil || !i.exists(unitFolder+hostUnits[1]) {
		_, err = i.run(ctx, i.at(i.Path), "host", "handover")
	}
	if err == nil {
		err = i.takeAll(ctx, i.units())
	}
	return err
}

func (h *Host) systemctl(ctx context.Context, words string, units ...string) error {
	_, err := h.run(ctx, "systemctl", append(strings.Fields(words), units...)...)
	return err
}

// outdated: systemd has loaded an older unit; that or the running program was replaced.
func (h *Host) outdated(ctx context.Context, unit string) (reload, restart bool) {
	out, _ := h.run(ctx, "systemctl", "show", "--property=LoadState,NeedDaemonReload,MainPID", unit)
	_, pid, _ := strings.Cut(out, "MainPID=")
	pid, _, _ = strings.Cut(pid, "\n")
	exe, _ := os.Readlink(h.at("/proc/" + pid + "/exe"))
	reload = strings.Contains(out, "=not-found\n") || strings.Contains(out, "=yes\n")
	return reload, reload || strings.HasSuffix(exe, " (deleted)")
}

// restart reloads systemd only if needed: containers can lose their GPUs.
func (h *Host) restart(ctx context.Context, how string, units ...string) error {
	for _, unit := range units {
		if reload, _ := h.outdated(ctx, unit); reload {
			if err := h.systemctl(ctx, "daemon-reload"); err != nil {
				return err
			}
		}
	}
	return h.systemctl(ctx, how, units[len(units)-1])
}
