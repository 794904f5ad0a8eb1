package harness

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Process is a child process whose output goes to files.
type Process struct {
	// Name names its files, Dir holds them.
	Name, Dir string
	cmd       *exec.Cmd
	done      chan struct{} // closed when it has ended
}

// StartProcess starts binary. Of the environment it gets what does not configure snowmelt.
func StartProcess(dir, name, binary string, args ...string) (*Process, error) {
	p := &Process{Name: name, Dir: dir, cmd: exec.CommandContext(context.Background(), binary, args...), done: make(chan struct{})} //nolint:gosec // the binary under test
	for _, pair := range os.Environ() {
		if !strings.HasPrefix(pair, "SNOWMELT_") {
			p.cmd.Env = append(p.cmd.Env, pair)
		}
	}
	out, err := os.Create(p.file("out"))
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	defer func() { _ = out.Close() }() // the child has its own
	log, err := os.Create(p.file("err"))
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	defer func() { _ = log.Close() }()
	p.cmd.Stdout, p.cmd.Stderr = out, log
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	go func() {
		_ = p.cmd.Wait() // its code is read from the state
		close(p.done)
	}()
	return p, nil
}

func (p *Process) file(kind string) string { return filepath.Join(p.Dir, p.Name+"."+kind) }

// Stdout returns what it has printed, Stderr what it has logged.
func (p *Process) Stdout() string { return read(p.file("out")) }

// Stderr returns what it has logged.
func (p *Process) Stderr() string { return read(p.file("err")) }

func read(file string) string {
	raw, _ := os.ReadFile(file)
	return string(raw)
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Ended reports whether the process has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Wait returns the exit code, -1 when a signal ended the process.
func (p *Process) Wait(ctx context.Context) (int, error) {
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode(), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("waiting for the end of %s: %w", p.Name, ctx.Err())
	}
}

// Signal sends a signal to the process.
func (p *Process) Signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("sending %v to %s: %w", s, p.Name, err)
	}
	return nil
}

// Kill ends the process as `kill -9` does, and returns when it is gone. A stopped process dies too.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended by itself
	<-p.done
}

// Until asks again and again whether something has come to be, until ctx ends.
func Until(ctx context.Context, what string, come func() (bool, error)) error {
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := come()
		if ok && err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w", what, errors.Join(ctx.Err(), err))
		}
	}
}

// FreeAddress returns an address of this machine on a port below those that
// outgoing connections get, so that it is still free when it is listened on; ""
// when it finds none.
func FreeAddress() string {
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", 12000+rand.IntN(18000)) //nolint:gosec // a port
		if l, err := net.Listen("tcp", address); err == nil {
			_ = l.Close()
			return address
		}
	}
	return ""
}
