package oci

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Encode is the config.json with the changes.
func (c *Config) Encode() ([]byte, error) {
	next := object{}
	for name, value := range c.whole {
		next[name] = value
	}
	err := change(next, "process", func(process object) error { return put(process, "env", c.Env) })
	if len(c.added) > 0 {
		err = errors.Join(err, change(next, "hooks", func(hooks object) error {
			var failed error
			for moment, added := range c.added {
				failed = errors.Join(failed, appendTo(hooks, moment, added))
			}
			return failed
		}))
	}
	if len(c.mounts) > 0 {
		err = errors.Join(err, appendTo(next, "mounts", c.mounts))
	}
	if err != nil {
		return nil, fmt.Errorf("change config.json: %w", err)
	}
	return json.Marshal(next)
}

// change changes a value of an object that is an object itself, and may be missing.
func change(outer object, name string, how func(object) error) error {
	inner := object{}
	if raw := outer[name]; raw != nil {
		if err := json.Unmarshal(raw, &inner); err != nil {
			return err
		}
	}
	if inner == nil { // null
		inner = object{}
	}
	if err := how(inner); err != nil {
		return err
	}
	return put(outer, name, inner)
}

// appendTo adds elements to a list that may be missing.
func appendTo[E any](outer object, name string, added []E) error {
	var list []json.RawMessage
	if raw := outer[name]; raw != nil {
		if err := json.Unmarshal(raw, &list); err != nil {
			return err
		}
	}
	for _, e := range added {
		raw, err := json.Marshal(e)
		if err != nil {
			return err
		}
		list = append(list, raw)
	}
	return put(outer, name, list)
}

func put(outer object, name string, value any) error {
	raw, err := json.Marshal(value)
	outer[name] = raw
	return err
}
