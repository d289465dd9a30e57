package localhost

import (
	"context"
	"errors"
	"os"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/local"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/hardware"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// StateFiles are the state files without what has ended. A host may have environments
// before its devices are registered.
func (h *Host) StateFiles(ctx context.Context) (state.Files, error) {
	return allowNoDevices(h.Store.Read(ctx))
}

// RawStateFiles are the state files as they are, with what has ended.
func (h *Host) RawStateFiles(ctx context.Context) (state.Files, error) {
	return allowNoDevices(h.Store.ReadRaw(ctx))
}

func allowNoDevices(files state.Files, err error) (state.Files, error) {
	if errors.Is(err, state.ErrNoDevices) {
		err = nil
	}
	return files, err
}

// Devices are the state files with the devices of this host. nvidia-smi is slow, so it
// is only asked if no devices are registered yet, or if the driver has more.
func (h *Host) Devices(ctx context.Context, raw bool) (state.Files, error) {
	read := h.Store.Read
	if raw {
		read = h.Store.ReadRaw
	}
	files, err := read(ctx)
	unregistered := errors.Is(err, state.ErrNoDevices)
	if err != nil && !unregistered {
		return files, err
	}
	if !unregistered && hardware.Count(h.Machine.Hardware.Proc) <= len(files.Devices) {
		return files, nil
	}
	found, err := h.Machine.ListDevices(ctx)
	if err != nil && unregistered {
		return files, err
	}
	if err != nil {
		files.Warnings = append(files.Warnings, "this host has devices that are not listed: "+err.Error())
		return files, nil
	}
	if files, err = h.Store.RegisterDevices(ctx, found); err != nil || !raw {
		return files, err
	}
	return read(ctx)
}

// DefaultAuditLog is where root's genv records what it does on a host.
const DefaultAuditLog = "/var/log/genv/audit.jsonl"

// HostLog is the audit log of this host; "" for none. Users other than root have none
// unless GENV_AUDIT_LOG names it.
func HostLog(getenv func(string) string) string {
	switch path := getenv("GENV_AUDIT_LOG"); {
	case path == "off", path == "" && os.Geteuid() != 0:
		return ""
	case path != "":
		return path
	}
	return DefaultAuditLog
}

// recordRenumbered records which attachments followed their GPUs to other indices. Where nothing
// can be recorded, the warning of the look says it.
func recordRenumbered(p command.Program, text string) {
	if path := HostLog(p.Getenv); path != "" {
		_ = audit.AppendHostLog(path, audit.Record{Time: p.Now().UTC(), Kind: audit.KindRenumbered, Host: snapshot.Hostname(local.Hostname()), Text: text})
	}
}
