// Package docker is the shim of docker: it has `docker run` and `docker create`
// give a container devices of the environment's alone, and tells the container
// which environment it is in. Everything else goes to the real docker as it is.
//
//	docker run --gpus all …            the attached devices
//	docker run --gpus 2 …              the first two of them
//	docker run --gpus device=3 …       device 3, if it is attached
//	docker run --device nvidia.com/gpu=all …   the attached devices (CDI)
//	docker run -e NVIDIA_VISIBLE_DEVICES=all … the attached devices
//	docker run --runtime nvidia …      the same, whatever the image says
//
// Each gets -e GENV_ENVIRONMENT_ID and GENV_ENVIRONMENT_NAME. Asking for more
// than is attached is an error. Only docker's own arguments, before the image,
// are read or changed, never the container's command. GENV_BYPASS=1 skips all
// this: it is a help, not a fence; enforcement doesn't rest on it.
package docker
