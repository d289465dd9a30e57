package kernel

import (
	"errors"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce/guard"
)

const nvidiaMajor = 195

const programName = "genv_guard"

// Between events of the same kind, uid and minor.
const eventInterval = 100 * time.Millisecond

// Fields of struct bpf_cgroup_dev_ctx, the program's argument.
const (
	ctxAccess = 0 // the access in the upper half, the type of device in the lower one
	ctxMajor  = 4
	ctxMinor  = 8

	typeCharacter = 2     // BPF_DEVCG_DEV_CHAR
	accessOpen    = 2 | 4 // BPF_DEVCG_ACC_READ, BPF_DEVCG_ACC_WRITE
	accessShift   = 16
	typeMask      = 0xffff
)

// Offsets, from the frame pointer, of values that calls of helpers would overwrite.
const (
	stackDeadline = -8
	stackMode     = -16 // mode and first uid, as in control
	stackFirstUID = -12
	stackNow      = -24
	stackKey      = -32 // of the map that is looked up
	stackLast     = -40
)

// Callee-saved registers.
const (
	rContext = asm.R6 // and later the event's record
	rUID     = asm.R7
	rMinor   = asm.R8
	rKind    = asm.R9
)

// The PID helper exists since about Linux 6.1.
func (m *maps) load(major int32) (*ebpf.Program, bool, error) {
	program, err := ebpf.NewProgramWithOptions(m.program(major, true), ebpf.ProgramOptions{LogDisabled: true})
	if err == nil {
		return program, true, nil
	}
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EACCES) {
		if program, err = ebpf.NewProgram(m.program(major, false)); err == nil {
			return program, false, nil
		}
	}
	// EACCES is the verifier's; a missing permission is EPERM.
	return nil, false, classify("load the program", err)
}

// program is the guard. Every doubt leads to "allow".
func (m *maps) program(major int32, withPID bool) *ebpf.ProgramSpec {
	code := slices.Concat(m.isGuardedOpen(major), m.isInLease(), m.isAllowed(), m.isFirst(withPID), m.write(withPID),
		asm.Instructions{
			asm.JEq.Imm(rKind, int32(guard.Denied), "deny").WithSymbol("verdict"),
			asm.Mov.Imm(asm.R0, 1).WithSymbol("allow"),
			asm.Return(),
			asm.Mov.Imm(asm.R0, 0).WithSymbol("deny"),
			asm.Return(),
		})
	return &ebpf.ProgramSpec{
		Name: programName, Type: ebpf.CGroupDevice, AttachType: ebpf.AttachCGroupDevice,
		Instructions: code, License: "Apache-2.0",
	}
}

func (m *maps) isGuardedOpen(major int32) asm.Instructions {
	return append(asm.Instructions{
		asm.Mov.Reg(rContext, asm.R1),
		asm.LoadMem(asm.R2, rContext, ctxAccess, asm.Word),
		asm.Mov.Reg(asm.R3, asm.R2),
		asm.And.Imm(asm.R3, typeMask),
		asm.JNE.Imm(asm.R3, typeCharacter, "allow"),
		asm.RSh.Imm(asm.R2, accessShift),
		asm.And.Imm(asm.R2, accessOpen),
		asm.JEq.Imm(asm.R2, 0, "allow"), // mknod alone, for example
		asm.LoadMem(asm.R3, rContext, ctxMajor, asm.Word),
		asm.JNE.Imm(asm.R3, major, "allow"),
		asm.LoadMem(rMinor, rContext, ctxMinor, asm.Word),
		asm.JGT.Imm(rMinor, guard.LastGPU, "allow"),
		asm.StoreMem(asm.RFP, stackKey, rMinor, asm.Word),
	}, append(lookUp(m.minors),
		asm.JEq.Imm(asm.R0, 0, "allow"),
		asm.LoadMem(asm.R1, asm.R0, 0, asm.Word),
		asm.JEq.Imm(asm.R1, 0, "allow"),
	)...)
}

// isInLease continues while the lease lasts: ordinary users to the verdict, others to the event.
func (m *maps) isInLease() asm.Instructions {
	return append(asm.Instructions{
		asm.StoreImm(asm.RFP, stackKey, 0, asm.Word),
	}, append(lookUp(m.control),
		asm.JEq.Imm(asm.R0, 0, "allow"),
		asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord),
		asm.StoreMem(asm.RFP, stackDeadline, asm.R1, asm.DWord),
		asm.LoadMem(asm.R1, asm.R0, 8, asm.DWord),
		asm.StoreMem(asm.RFP, stackMode, asm.R1, asm.DWord),
		asm.FnKtimeGetBootNs.Call(),
		asm.StoreMem(asm.RFP, stackNow, asm.R0, asm.DWord),
		asm.LoadMem(asm.R1, asm.RFP, stackDeadline, asm.DWord),
		asm.JGE.Reg(asm.R0, asm.R1, "allow"),
		asm.FnGetCurrentUidGid.Call(),
		asm.Mov.Reg32(rUID, asm.R0),
		asm.JEq.Imm(rUID, 0, "opened"),
		asm.LoadMem(asm.R1, asm.RFP, stackFirstUID, asm.Word),
		asm.JLT.Reg(rUID, asm.R1, "opened"),
	)...)
}

func (m *maps) isAllowed() asm.Instructions {
	return append(asm.Instructions{
		asm.LoadMem(asm.R1, asm.RFP, stackMode, asm.Word),
		asm.JEq.Imm(asm.R1, 0, "opened"),
		asm.JGT.Imm(asm.R1, modeEnforce, "allow"),
		asm.StoreMem(asm.RFP, stackKey, rUID, asm.Word),
	}, append(lookUp(m.allowed),
		asm.JEq.Imm(asm.R0, 0, "refused"),
		asm.Mov.Reg(asm.R1, rMinor),
		asm.RSh.Imm(asm.R1, 6), // the word of Minors
		asm.LSh.Imm(asm.R1, 3), // its offset
		asm.Add.Reg(asm.R0, asm.R1),
		asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord),
		asm.Mov.Reg(asm.R2, rMinor),
		asm.And.Imm(asm.R2, 63),
		asm.RSh.Reg(asm.R1, asm.R2),
		asm.And.Imm(asm.R1, 1),
		asm.JNE.Imm(asm.R1, 0, "opened"),

		asm.Mov.Imm(rKind, int32(guard.Denied)).WithSymbol("refused"),
		asm.LoadMem(asm.R1, asm.RFP, stackMode, asm.Word),
		asm.JEq.Imm(asm.R1, modeEnforce, "report"),
		asm.Mov.Imm(rKind, int32(guard.WouldDeny)),
		asm.Ja.Label("report"),

		asm.Mov.Imm(rKind, int32(guard.Opened)).WithSymbol("opened"),
	)...)
}

// isFirst continues to write the event, unless there was just one of the same kind, uid and minor or, for an allowed
// open, of its process: a process that only looks hides no other. Failures here and in write change no verdict.
func (m *maps) isFirst(withPID bool) asm.Instructions {
	code := asm.Instructions{asm.StoreMem(asm.RFP, stackKey, rUID, asm.Word).WithSymbol("report")}
	if withPID {
		code = append(code,
			asm.JNE.Imm(rKind, int32(guard.Opened), "keyed"),
			asm.FnGetCurrentPidTgid.Call(),
			asm.RSh.Imm(asm.R0, 32),
			asm.StoreMem(asm.RFP, stackKey, asm.R0, asm.Word),
		)
	}
	return append(append(code,
		asm.StoreMem(asm.RFP, stackKey+4, rMinor, asm.Half).WithSymbol("keyed"),
		asm.StoreMem(asm.RFP, stackKey+6, rKind, asm.Half),
	), append(lookUp(m.limits),
		asm.LoadMem(asm.R3, asm.RFP, stackNow, asm.DWord),
		asm.JEq.Imm(asm.R0, 0, "first"),
		asm.LoadMem(asm.R2, asm.R0, 0, asm.DWord),
		asm.Mov.Reg(asm.R1, asm.R3),
		asm.Sub.Reg(asm.R1, asm.R2),
		// Signed: the other CPU may have been here a moment later.
		asm.JSLT.Imm(asm.R1, int32(eventInterval), "verdict"),
		asm.StoreMem(asm.R0, 0, asm.R3, asm.DWord),
		asm.Ja.Label("write"),

		asm.StoreMem(asm.RFP, stackLast, asm.R3, asm.DWord).WithSymbol("first"),
		asm.LoadMapPtr(asm.R1, m.limits.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, stackKey),
		asm.Mov.Reg(asm.R3, asm.RFP),
		asm.Add.Imm(asm.R3, stackLast),
		asm.Mov.Imm(asm.R4, 0),
		asm.FnMapUpdateElem.Call(),
	)...)
}

func (m *maps) write(withPID bool) asm.Instructions {
	code := asm.Instructions{
		asm.LoadMapPtr(asm.R1, m.events.FD()).WithSymbol("write"),
		asm.Mov.Imm(asm.R2, recordSize),
		asm.Mov.Imm(asm.R3, 0),
		asm.FnRingbufReserve.Call(),
		asm.JEq.Imm(asm.R0, 0, "lost"),
		asm.Mov.Reg(rContext, asm.R0),
		asm.StoreMem(rContext, recordUID, rUID, asm.Word),
		asm.StoreMem(rContext, recordMinor, rMinor, asm.Half),
		asm.StoreMem(rContext, recordKind, rKind, asm.Half),
		asm.StoreImm(rContext, recordPID+4, 0, asm.Word),
		asm.Mov.Imm(asm.R0, 0),
	}
	if withPID {
		code = append(code, asm.FnGetCurrentPidTgid.Call(), asm.RSh.Imm(asm.R0, 32))
	}
	return append(code, append(asm.Instructions{
		asm.StoreMem(rContext, recordPID, asm.R0, asm.Word),
		asm.Mov.Reg(asm.R1, rContext),
		asm.Mov.Imm(asm.R2, 0),
		asm.FnRingbufSubmit.Call(),
		asm.Ja.Label("verdict"),

		asm.StoreImm(asm.RFP, stackKey, 0, asm.Word).WithSymbol("lost"),
	}, append(lookUp(m.lost),
		asm.JEq.Imm(asm.R0, 0, "verdict"),
		asm.Mov.Imm(asm.R1, 1),
		asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
	)...)...)
}

// lookUp looks up the key on the stack; R0 is the element's address, or 0.
func lookUp(m *ebpf.Map) asm.Instructions {
	return asm.Instructions{
		asm.LoadMapPtr(asm.R1, m.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, stackKey),
		asm.FnMapLookupElem.Call(),
	}
}
