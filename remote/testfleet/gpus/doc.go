// Package gpus simulates the GPUs of a host: a JSON file that lists devices and
// the processes that use them, and a stand-in for nvidia-smi that prints that
// file in nvidia-smi's formats, without processes that have ended.
//
//	driver := gpus.Driver{Devices: gpus.Devices("gpu-01", 8, "NVIDIA H100 80GB HBM3", 81559)}
//	err := driver.Write("gpus.json")
//	// GENV_SIM_GPUS=gpus.json nvidia-smi --query-gpu=index,uuid --format=csv
//
// Any program can be the stand-in: it calls Main when its own name is
// nvidia-smi. The command in the folder nvidia-smi does nothing else.
package gpus
