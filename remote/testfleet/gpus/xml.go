package gpus

import (
	"encoding/xml"
	"fmt"
	"io"
	"time"
)

// The elements of `nvidia-smi -q -x` about devices and processes; the real
// program prints many more.
type (
	xmlLog struct {
		XMLName   xml.Name `xml:"nvidia_smi_log"`
		Timestamp string   `xml:"timestamp"`
		Driver    string   `xml:"driver_version"`
		CUDA      string   `xml:"cuda_version"`
		Attached  int      `xml:"attached_gpus"`
		GPUs      []xmlGPU `xml:"gpu"`
	}
	xmlGPU struct {
		ID        string       `xml:"id,attr"`
		Product   string       `xml:"product_name"`
		UUID      string       `xml:"uuid"`
		Minor     int          `xml:"minor_number"`
		Total     string       `xml:"fb_memory_usage>total"`
		Used      string       `xml:"fb_memory_usage>used"`
		Free      string       `xml:"fb_memory_usage>free"`
		Processes []xmlProcess `xml:"processes>process_info"`
	}
	xmlProcess struct {
		GPUInstance     string `xml:"gpu_instance_id"`
		ComputeInstance string `xml:"compute_instance_id"`
		PID             int    `xml:"pid"`
		Type            string `xml:"type"`
		Name            string `xml:"process_name"`
		Used            string `xml:"used_memory"`
	}
)

func showXML(w io.Writer, h Host, now time.Time) error {
	log := xmlLog{Timestamp: now.Format("Mon Jan _2 15:04:05 2006"), Driver: h.Driver, CUDA: h.CUDA, Attached: len(h.Devices)}
	for _, d := range h.Devices {
		used := h.used(d)
		log.GPUs = append(log.GPUs, xmlGPU{
			ID: busID(d.Index), Product: d.Name, UUID: d.UUID, Minor: d.Index,
			Total: mib(&d.TotalMiB), Used: mib(&used), Free: fmt.Sprintf("%d MiB", d.TotalMiB-used),
			Processes: xmlProcesses(h, d),
		})
	}
	body, err := xml.MarshalIndent(log, "", "\t")
	if err != nil {
		return fmt.Errorf("encode the devices: %w", err)
	}
	_, err = fmt.Fprintf(w, "<?xml version=\"1.0\" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM \"nvsmi_device_v12.dtd\">\n%s\n", body)
	return err
}

func xmlProcesses(h Host, d Device) []xmlProcess {
	var processes []xmlProcess
	for _, a := range h.Apps {
		if on, ok := h.device(a); ok && on.Index == d.Index {
			processes = append(processes, xmlProcess{
				GPUInstance: "N/A", ComputeInstance: "N/A", PID: a.PID, Type: "C", Name: a.Name, Used: mib(a.UsedMiB),
			})
		}
	}
	return processes
}

func mib(n *int64) string {
	if n == nil {
		return "N/A"
	}
	return fmt.Sprintf("%d MiB", *n)
}
