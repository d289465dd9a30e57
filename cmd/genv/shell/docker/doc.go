// Package docker is the shim of docker: with it, `docker run` and `docker create` give
// a container only devices of the environment, and variables that name the environment.
// Everything else goes to the real docker as it is.
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
// are read or changed, never the container's command. GENV_BYPASS=1 skips all this: it
// only helps users, and enforcement doesn't depend on it.
package docker
