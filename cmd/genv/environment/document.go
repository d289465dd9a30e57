package environment

import "github.com/seed-3119e985/genv/snapshot"

// Document is an environment as JSON shows it; docs/json.md describes it.
type Document struct {
	EID            snapshot.EnvID    `json:"eid"`
	UID            snapshot.UID      `json:"uid"`
	User           snapshot.Username `json:"user"`
	Name           string            `json:"name"`
	Created        string            `json:"created"` // the host's wall clock, YYYY-MM-DDTHH:MM:SS
	GPUs           *int              `json:"gpus"`
	GPUMemoryBytes *int64            `json:"gpu_memory_bytes"`
	PIDs           []snapshot.PID    `json:"pids"`
}

// DocumentOf describes an environment.
func DocumentOf(e *snapshot.Environment) Document {
	return Document{
		EID: e.EID, UID: e.UID, User: e.Username, Name: e.Config.Name, Created: e.Creation.ISO(),
		GPUs: e.Config.GPUs, GPUMemoryBytes: Bytes(e.Config.GPUMemory), PIDs: append([]snapshot.PID{}, e.PIDs...),
	}
}

// Bytes is an amount of memory as JSON shows it: nil if it is unknown.
func Bytes(m snapshot.Memory) *int64 {
	if !m.Known() {
		return nil
	}
	return new(m.Bytes())
}
