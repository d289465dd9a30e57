package gpus

import (
	"strings"
	"text/template"
)

// render fills in one of the templates.
func render(t *template.Template, v view) string {
	var b strings.Builder
	if err := t.Execute(&b, v); err != nil {
		panic(err) // the template is wrong
	}
	return b.String()
}

var functions = template.FuncMap{"amount": amount, "ending": ending}

// ending is a name as the table shows it: of a long one the end.
func ending(name string) string {
	if len(name) <= 41 {
		return name
	}
	return "..." + name[len(name)-38:]
}

func parse(text string) *template.Template {
	return template.Must(template.New("").Funcs(functions).Parse(text))
}

// list is the output of `nvidia-smi -L`: a line for each device, and one below it
// for each of its MIG instances.
var list = parse(`{{range .Devices}}GPU {{.Index}}: {{.Name}} (UUID: {{.UUID}})
{{range $i, $m := .MIG}}{{printf "  MIG %-11s Device %2d: (UUID: %s)" .Profile $i .UUID}}
{{end}}{{end}}`)

// table is what a driver of the 550 series prints without an argument.
var table = parse(`{{.Now.Format "Mon Jan _2 15:04:05 2006       "}}
+-----------------------------------------------------------------------------------------+
{{printf "| NVIDIA-SMI %-23sDriver Version: %-15sCUDA Version: %-9s|" .Version .Version .CUDA}}
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
{{range .Devices -}}
{{printf "| %3d  %-30.30s  On |   %s Off |                    0 |" .Index .Name .BusID}}
{{printf "| N/A  %3dC    P0           %4dW /  700W |" ($.Celsius .) ($.Watt .)}}
{{- printf " %7dMiB / %6dMiB |    %3d%%      Default |" ($.Used .) .TotalMiB ($.Load .)}}
{{printf "|                                         |                        | %20s |" .MIGMode}}
+-----------------------------------------+------------------------+----------------------+
{{end}}{{printf "%89s" ""}}
+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI        PID   Type   Process name                              GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
{{range $d := .Devices}}{{range $.On .}}
{{- printf "|  %3d   N/A  N/A  %8d      C   %-41s %10s |" $d.Index .PID (ending .Name) (amount .UsedMiB "MiB" "N/A")}}
{{end}}{{end}}{{if not .Apps}}{{printf "|  %-86s |" "No running processes found"}}
{{end}}+-----------------------------------------------------------------------------------------+
`)

// xml is what `nvidia-smi -q -x` prints about devices and processes; the real
// program prints many more elements.
var xml = parse(`<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
	<timestamp>{{.Now.Format "Mon Jan _2 15:04:05 2006"}}</timestamp>
	<driver_version>{{html .Version}}</driver_version>
	<cuda_version>{{html .CUDA}}</cuda_version>
	<attached_gpus>{{len .Devices}}</attached_gpus>
{{- range .Devices}}
	<gpu id="{{.BusID}}">
		<product_name>{{html .Name}}</product_name>
		<uuid>{{html .UUID}}</uuid>
		<minor_number>{{.MinorNumber}}</minor_number>
		<fb_memory_usage>
			<total>{{.TotalMiB}} MiB</total>
			<used>{{$.Used .}} MiB</used>
			<free>{{$.Free .}} MiB</free>
		</fb_memory_usage>
		<processes>
{{- range $.On .}}
			<process_info>
				<gpu_instance_id>N/A</gpu_instance_id>
				<compute_instance_id>N/A</compute_instance_id>
				<pid>{{.PID}}</pid>
				<type>C</type>
				<process_name>{{html .Name}}</process_name>
				<used_memory>{{amount .UsedMiB " MiB" "N/A"}}</used_memory>
			</process_info>
{{- end}}
		</processes>
	</gpu>
{{- end}}
</nvidia_smi_log>
`)
