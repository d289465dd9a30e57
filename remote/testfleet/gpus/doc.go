// Package gpus simulates the GPUs of a host: a JSON file that lists devices and
// the processes that use them, and a stand-in for nvidia-smi that prints that
// file in nvidia-smi's formats. A process that has ended is on no device, as
// with a real driver: the stand-in looks into /proc whenever it is asked.
//
//	host := gpus.Host{Devices: gpus.Devices("gpu-01", 8, "NVIDIA H100 80GB HBM3", 81559)}
//	err := host.Write("gpus.json")
//	// GENV_SIM_GPUS=gpus.json nvidia-smi --query-gpu=index,uuid --format=csv
//
// Any program can be the stand-in: it calls Main when its own name is
// nvidia-smi. The command in the folder nvidia-smi does nothing else.
//
// Nothing computes here, and nothing changes by itself but processes' ends.
package gpus
