package safety

// Protected are the names of daemons that are never ended unless a policy names them:
// those that carry a machine, our own way in, and NVIDIA's. A name alone
// protects no process, since every user may choose one: the host says which of its
// processes go by one rightly (snapshot.Process.Protected; see enforce/local).
func Protected() []string {
	return []string{
		"systemd", "init", "sshd", "sshd-session", "sshd-auth",
		"nvidia-cuda-mps-server", "nvidia-cuda-mps-control",
		"nvidia-persistenced", "nvidia-fabricmanager", "nv-fabricmanager", "nvidia-imex", "nvidia-powerd",
		"nvidia-gridd", "nvidia-vgpu-mgr", "nvidia-vgpud", "nv-hostengine", "dcgm", "dcgm-exporter",
	}
}
