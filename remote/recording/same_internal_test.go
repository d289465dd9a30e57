package recording

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
)

// Whatever field differs of what is recorded, the change is written: a new field has to be compared.
func TestEachFieldIsCompared(t *testing.T) {
	full := func() *snapshot.Snapshot {
		return &snapshot.Snapshot{
			Processes:    []snapshot.Process{{Usage: []snapshot.DeviceUsage{{}}, ContainerInfo: new(snapshot.ContainerInfo)}},
			Environments: make([]snapshot.Environment, 1),
			Devices:      []snapshot.Device{{Attachments: make([]snapshot.Attachment, 1), Instances: make([]snapshot.Instance, 1)}},
		}
	}
	seen := 0
	change := func(name string, of func(*snapshot.Snapshot) reflect.Value) {
		fields := of(full())
		for i := range fields.NumField() {
			before, after := full(), full()
			field := of(after).Field(i)
			if !other(field) {
				continue
			}
			seen++
			kept := Judged(after)
			_, changed, err := appendDelta(nil, Judged(before), kept)
			require.NoError(t, err)
			require.Equal(t, !reflect.DeepEqual(Judged(before), kept), changed, "%s.%s", name, fields.Type().Field(i).Name)
		}
	}
	change("Process", func(s *snapshot.Snapshot) reflect.Value { return reflect.ValueOf(&s.Processes[0]).Elem() })
	change("Usage", func(s *snapshot.Snapshot) reflect.Value { return reflect.ValueOf(&s.Processes[0].Usage[0]).Elem() })
	change("ContainerInfo", func(s *snapshot.Snapshot) reflect.Value { return reflect.ValueOf(s.Processes[0].ContainerInfo).Elem() })
	change("Environment", func(s *snapshot.Snapshot) reflect.Value { return reflect.ValueOf(&s.Environments[0]).Elem() })
	change("Config", func(s *snapshot.Snapshot) reflect.Value { return reflect.ValueOf(&s.Environments[0].Config).Elem() })
	change("Device", func(s *snapshot.Snapshot) reflect.Value { return reflect.ValueOf(&s.Devices[0]).Elem() })
	change("Attachment", func(s *snapshot.Snapshot) reflect.Value { return reflect.ValueOf(&s.Devices[0].Attachments[0]).Elem() })
	change("Instance", func(s *snapshot.Snapshot) reflect.Value { return reflect.ValueOf(&s.Devices[0].Instances[0]).Elem() })
	require.Greater(t, seen, 35)
}

// other sets a field to another value; false for a list of structs, which are tried one by one.
func other(v reflect.Value) bool {
	switch at := v.Addr().Interface().(type) {
	case *snapshot.Memory:
		*at = snapshot.MiB(7)
		return true
	case *snapshot.Date:
		*at = snapshot.DateOf(time.Unix(1e9, 0))
		return true
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("other")
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(v.Int() + 1)
	case reflect.Uint32, reflect.Uint64:
		v.SetUint(v.Uint() + 1)
	case reflect.Float64:
		v.SetFloat(1)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("a"), reflect.ValueOf("b"))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
	default:
		return false
	}
	return true
}
