package shell

// Preactivation has a shell activate itself when it is initialised:
// `genv remote activate` opens a shell on a host with these variables in its
// environment. They are taken away before the activation, so that no shell that
// is started from the new one activates again.
//
//	GENV_PREACTIVATE=1                 activate at all
//	GENV_PREACTIVATE_EID               --id
//	GENV_PREACTIVATE_NAME              --name
//	GENV_PREACTIVATE_GPUS              --gpus
//	GENV_PREACTIVATE_GPU_MEMORY        --gpu-memory
//	GENV_PREACTIVATE_NO_PROMPT=1       --no-prompt
//	GENV_PREACTIVATE_NO_ATTACH=1       --no-attach
//	GENV_PREACTIVATE_OVER_SUBSCRIBE=1  --over-subscribe
type Preactivation struct {
	EID, Name, GPUs, GPUMemory        string // empty for none
	NoPrompt, NoAttach, OverSubscribe bool
}

const preactivate = "GENV_PREACTIVATE"

// texts pairs the ending of each variable with its flag.
func (p *Preactivation) texts() []preactivateText {
	return []preactivateText{
		{"_EID", "--id", &p.EID},
		{"_NAME", "--name", &p.Name},
		{"_GPUS", "--gpus", &p.GPUs},
		{"_GPU_MEMORY", "--gpu-memory", &p.GPUMemory},
	}
}

func (p *Preactivation) switches() []preactivateSwitch {
	return []preactivateSwitch{
		{"_NO_PROMPT", "--no-prompt", &p.NoPrompt},
		{"_NO_ATTACH", "--no-attach", &p.NoAttach},
		{"_OVER_SUBSCRIBE", "--over-subscribe", &p.OverSubscribe},
	}
}

type preactivateText struct {
	suffix, flag string
	value        *string
}

type preactivateSwitch struct {
	suffix, flag string
	value        *bool
}

// PreactivationFrom reads the variables; false when the shell isn't to activate
// itself, or is active already.
func PreactivationFrom(getenv func(string) string) (Preactivation, bool) {
	var p Preactivation
	if getenv(preactivate) != "1" || getenv("GENV_ENVIRONMENT_ID") != "" {
		return p, false
	}
	for _, t := range p.texts() {
		*t.value = getenv(preactivate + t.suffix)
	}
	for _, s := range p.switches() {
		*s.value = getenv(preactivate+s.suffix) == "1"
	}
	return p, true
}

// Environ is the variables as NAME=VALUE, for env(1) or a process. The values
// are not quoted.
func (p Preactivation) Environ() []string {
	environ := []string{preactivate + "=1"}
	for _, t := range p.texts() {
		if *t.value != "" {
			environ = append(environ, preactivate+t.suffix+"="+*t.value)
		}
	}
	for _, s := range p.switches() {
		if *s.value {
			environ = append(environ, preactivate+s.suffix+"=1")
		}
	}
	return environ
}

// Args is the command line of genv that the variables stand for. A value is
// joined to its flag: it may start with a dash.
func (p Preactivation) Args() []string {
	args := []string{"activate"}
	for _, t := range p.texts() {
		if *t.value != "" {
			args = append(args, t.flag+"="+*t.value)
		}
	}
	for _, s := range p.switches() {
		if *s.value {
			args = append(args, s.flag)
		}
	}
	return args
}

// names lists every variable that may be set.
func (p *Preactivation) names() []string {
	names := []string{preactivate}
	for _, t := range p.texts() {
		names = append(names, preactivate+t.suffix)
	}
	for _, s := range p.switches() {
		names = append(names, preactivate+s.suffix)
	}
	return names
}
