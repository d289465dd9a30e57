package nvidiasmi_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// details is of a GPU with a process that draws, and of one with MIG instances, of which two share 40,448 MiB.
const details = `<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
	<gpu id="00000000:01:00.0">
		<mig_devices>None</mig_devices>
		<uuid>GPU-0</uuid>
		<processes>
			<process_info><gpu_instance_id>N/A</gpu_instance_id><compute_instance_id>N/A</compute_instance_id><pid>70</pid><type>C+G</type></process_info>
			<process_info><pid>[N/A]</pid><type>C</type></process_info>
		</processes>
	</gpu>
	<gpu id="00000000:02:00.0">
		<mig_devices>
			<mig_device><index>0</index><gpu_instance_id>2</gpu_instance_id><compute_instance_id>0</compute_instance_id><fb_memory_usage><total>40448 MiB</total></fb_memory_usage></mig_device>
			<mig_device><index>1</index><gpu_instance_id>2</gpu_instance_id><compute_instance_id>1</compute_instance_id><fb_memory_usage><total>40448 MiB</total></fb_memory_usage></mig_device>
			<mig_device><index>2</index><gpu_instance_id>9</gpu_instance_id><compute_instance_id>0</compute_instance_id><fb_memory_usage><total>[N/A]</total></fb_memory_usage></mig_device>
		</mig_devices>
		<uuid>GPU-1</uuid>
		<processes>
			<process_info><gpu_instance_id>2</gpu_instance_id><compute_instance_id>1</compute_instance_id><pid>71</pid><type>C</type></process_info>
			<process_info><gpu_instance_id>9</gpu_instance_id><compute_instance_id>0</compute_instance_id><pid>72</pid><type>C</type></process_info>
			<process_info><gpu_instance_id>5</gpu_instance_id><compute_instance_id>0</compute_instance_id><pid>73</pid><type>C</type></process_info>
		</processes>
	</gpu>
</nvidia_smi_log>
`

func TestParseDetails(t *testing.T) {
	got := proctest.Try(nvidiasmi.ParseDetails(stdout(details))).OK(t)
	whole := got
	require.Equal(t, map[snapshot.GPUUUID][]nvidiasmi.InstanceDetails{"GPU-0": nil, "GPU-1": {
		{Memory: snapshot.MiB(40448), Pool: "2"},
		{Memory: snapshot.MiB(40448), Pool: "2", PIDs: []snapshot.PID{71}},
		{Pool: "9", PIDs: []snapshot.PID{72}},
	}}, got.Instances)
	require.Equal(t, map[snapshot.PID]snapshot.ProcessType{70: "C+G"}, got.Drawing)

	instances := []snapshot.Instance{{UUID: "MIG-a", Profile: "1c.3g.40gb"}, {UUID: "MIG-b", Profile: "2c.3g.40gb"}, {UUID: "MIG-c", Profile: "1g.10gb"}}
	for pid, want := range map[snapshot.PID]snapshot.GPUUUID{71: "MIG-b", 72: "MIG-c", 73: "", 74: ""} {
		require.Equal(t, want, got.Instance("GPU-1", pid, instances), pid)
		require.Empty(t, got.Instance("GPU-1", pid, instances[:2]), "the answers differ")
		require.Empty(t, got.Instance("GPU-0", pid, instances))
		require.Empty(t, got.Instance("", pid, nil))
	}
	got.Describe("GPU-1", instances)
	require.Equal(t, []snapshot.Instance{
		{UUID: "MIG-a", Profile: "1c.3g.40gb", Total: snapshot.MiB(40448), Pool: "2"},
		{UUID: "MIG-b", Profile: "2c.3g.40gb", Total: snapshot.MiB(40448), Pool: "2"},
		{UUID: "MIG-c", Profile: "1g.10gb", Pool: "9"},
	}, instances)
	require.Equal(t, snapshot.MiB(40960), instances[0].Memory(), "no process makes it smaller by its name")
	require.Equal(t, snapshot.MiB(10240), instances[2].Memory())

	for name, out := range map[string]nvidiasmi.RunResult{
		"an infoROM":          {Stdout: []byte(details + "\nWARNING: infoROM is corrupted at gpu 0000:01:00.0\n"), ExitCode: 14},
		"another GPU is lost": {Stdout: []byte(details), ExitCode: 15},
		"a name in Latin-1":   stdout(strings.ReplaceAll(details, "</type>", "</type>\n<process_name>m\xfcller</process_name>\n")),
		"a name with a tag":   stdout(strings.ReplaceAll(details, "</type>", "</type>\n<process_name></processes></gpu><gpu><uuid>GPU-0</uuid></process_name>\n")),
	} {
		odd := proctest.Try(nvidiasmi.ParseDetails(out)).OK(t, name)
		require.Equal(t, whole, odd, name)
	}
	// named is what is printed when the processes of GPU-0 and GPU-1 have these names.
	named := func(first, second string) string {
		forged := strings.Replace(details, "<process_info>", "<process_info><process_name>"+first+"</process_name>\n", 1)
		return strings.Replace(forged, "<pid>71", "<process_name>"+second+"</process_name>\n<pid>71", 1)
	}
	for name, forged := range map[string]string{
		"no XML":               named("x\n<", "y"),
		"an end":               named("x</process_name>\n</processes></gpu></nvidia_smi_log>\n", "y"),
		"a comment":            named("x\n<!--", "-->"),
		"another type":         named("x\n<pid>70</pid><type>C</type>", "x\n<pid>70</pid>\n<type>"),
		"another GPU":          named("x</process_name>\n</process_info></processes></gpu><gpu><uuid>GPU-2</uuid><processes><process_info>", "y"),
		"an element around it": named("x</process_name>\n</process_info><junk><process_info>", "</process_name></process_info></junk>"),
	} {
		got := proctest.Try(nvidiasmi.ParseDetails(stdout(forged))).OK(t, name)
		require.Equal(t, whole.Drawing, got.Drawing, name)
	}
	for name, out := range map[string]nvidiasmi.RunResult{
		"no XML": stdout("No devices were found"), "cut": stdout(details[:900]), "a failure": {Stdout: []byte(details), ExitCode: 9},
	} {
		require.Error(t, proctest.Try(nvidiasmi.ParseDetails(out)).Err, name)
	}
}
