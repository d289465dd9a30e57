package llm

import "github.com/seed-3119e985/genv/snapshot"

// Model is a model that an environment says it serves, and of which user the environment is.
type Model struct {
	Served
	EID     snapshot.EnvID    `json:"eid"`
	UID     snapshot.UID      `json:"uid"`
	User    snapshot.Username `json:"user"`
	PIDs    []snapshot.PID    `json:"pids"`
	Created snapshot.Date     `json:"-"`
}

// Models are those that the environments of a host serve, never nil.
func Models(environments []snapshot.Environment) []Model {
	list := []Model{}
	for i := range environments {
		e := &environments[i]
		if s, ok := Of(e); ok {
			list = append(list, Model{s, e.EID, e.UID, e.Username, append([]snapshot.PID{}, e.PIDs...), e.Creation})
		}
	}
	return list
}

// Choose is the first server of a model, at a port unless that is 0; one of the user's own
// if there is any. It is nil if the model isn't served, or only at an unknown port.
func Choose(models []Model, model string, port int, uid snapshot.UID) (chosen *Model) {
	for i := range models {
		m := &models[i]
		if m.Model != model || m.Port == 0 || port != 0 && m.Port != port {
			continue
		}
		if m.UID == uid {
			return m
		}
		if chosen == nil {
			chosen = m
		}
	}
	return chosen
}
